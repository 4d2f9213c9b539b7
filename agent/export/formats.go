package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"evenkeel/internal/names"
)

// Format is one that Write writes.
type Format struct {
	Name        string
	Description string
	Equal       bool     // all ranks make the same number of micro-steps
	AllReduce   bool     // its trainers add up gradients by an all-reduce, which waits for every rank
	NoDeadline  string   // why it cannot carry a deadline; "": it can
	also        []string // other names that people type
	write       func(*bytes.Buffer, Sizes) error
}

// Formats lists the formats of Write in the order of the documentation.
func Formats() []Format {
	return []Format{
		{
			Name: "json", Description: "the sizes file, with a JSON schema",
			also: []string{"schema"}, write: writeJSON,
		}, {
			Name: "csv", Description: "a table, one node a line",
			NoDeadline: "csv cannot carry a deadline, and its gradient weights hold only without one",
			also:       []string{"table", "tsv"}, write: writeCSV,
		}, {
			Name: "torchrun", Description: "a shell script to source: environment variables by $RANK",
			AllReduce: true,
			also:      []string{"env", "sh", "shell", "pytorch", "ddp"}, write: writeTorchrun,
		}, {
			Name: "deepspeed", Description: "a DeepSpeed configuration fragment with the sizes by rank",
			AllReduce: true, Equal: true,
			NoDeadline: "DeepSpeed's ranks need equal numbers of micro-steps: it cannot end a round at a deadline",
			also:       []string{"ds", "zero"}, write: writeDeepSpeed,
		}, {
			Name: "kubernetes", Description: "a ConfigMap to mount: sizes.json, sizes.sh and a file per rank",
			also: []string{"k8s", "configmap"}, write: writeKubernetes,
		},
	}
}

// Find returns the format of a name. The error for an unknown one suggests the nearest.
func Find(name string) (Format, error) {
	var known [][]string
	for _, f := range Formats() {
		if f.Name == name {
			return f, nil
		}
		known = append(known, append([]string{f.Name}, f.also...))
	}
	return Format{}, fmt.Errorf("%w %s", ErrFormat, names.Unknown(name, known))
}

// quoted returns v as JSON on one line.
func quoted(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return "null" // strings and finite numbers always encode
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// decimal returns the shortest exact form without an exponent, which shells and awk read.
func decimal(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// writeJSON writes a node per line, so that files can be read and compared by line.
func writeJSON(b *bytes.Buffer, s Sizes) error {
	numbers := ""
	if s.Plan > 0 {
		numbers = fmt.Sprintf("  \"generation\": %d,\n  \"plan\": %d,\n", s.Generation, s.Plan)
	}
	fmt.Fprintf(b, "{\n  \"version\": %d,\n  \"workload\": %s,\n  \"global_batch\": %d,\n%s%s  \"nodes\": [\n",
		s.Version, quoted(s.Workload), s.GlobalBatch, numbers, s.optional("  "))
	for i, n := range s.Nodes {
		if i > 0 {
			b.WriteString(",\n")
		}
		b.WriteString("    " + quoted(n))
	}
	b.WriteString("\n  ]\n}\n")
	return nil
}

// optional returns the fields of equal micro-steps, the learning rate and the deadline, if any, one per line.
func (s *Sizes) optional(indent string) string {
	var b strings.Builder
	field := func(name, value string) { fmt.Fprintf(&b, "%s\"%s\": %s,\n", indent, name, value) }
	if s.EqualSteps > 0 {
		field("equal_steps", strconv.Itoa(s.EqualSteps))
	}
	if s.LearningRateScaling != "" {
		field("reference_batch", strconv.Itoa(s.ReferenceBatch))
		field("learning_rate_scaling", quoted(s.LearningRateScaling))
		field("learning_rate_factor", decimal(s.LearningRateFactor))
	}
	if s.Deadline != nil {
		field("deadline", quoted(s.Deadline))
	}
	return b.String()
}

func writeCSV(b *bytes.Buffer, s Sizes) error {
	w := csv.NewWriter(b)
	rows := [][]string{{"rank", "name", "device", "micro_batch", "micro_steps", "share", "gradient_weight"}}
	rank := 0
	for _, n := range s.Nodes {
		r := ""
		if n.Share > 0 {
			r = strconv.Itoa(rank)
			rank++
		}
		rows = append(rows, []string{r, n.Name, n.Device, strconv.Itoa(n.MicroBatch), strconv.Itoa(n.MicroSteps), strconv.Itoa(n.Share), decimal(n.GradientWeight)})
	}
	return w.WriteAll(rows)
}
