package export

import (
	"bytes"
	"fmt"
	"strings"
)

// variable is an environment variable with its value as a shell word.
type variable struct{ name, word string }

// environment returns the variables for the process of one rank.
func environment(s Sizes, rank int, n Node) []variable {
	all := []variable{
		{"EVENKEEL_RANK", fmt.Sprint(rank)},
		{"EVENKEEL_MICRO_BATCH", fmt.Sprint(n.MicroBatch)},
		{"EVENKEEL_MICRO_STEPS", fmt.Sprint(n.MicroSteps)},
		{"EVENKEEL_SHARE", fmt.Sprint(n.Share)},
	}
	if n.Deadline == nil { // with a deadline, the weight follows from the samples that the rank has by then
		all = append(all, variable{"EVENKEEL_GRADIENT_WEIGHT", decimal(n.GradientWeight)})
	}
	all = append(all, variable{"EVENKEEL_GLOBAL_BATCH", fmt.Sprint(s.GlobalBatch)}, variable{"EVENKEEL_NODE", word(n.Name)}, variable{"EVENKEEL_DEVICE", word(n.Device)})
	if n.Deadline != nil {
		all = append(all, n.Deadline.variables(s.Deadline)...)
	}
	if s.LearningRateScaling != "" {
		all = append(all, variable{"EVENKEEL_LEARNING_RATE_FACTOR", decimal(s.LearningRateFactor)})
	}
	return all
}

// word quotes v so that a shell takes every character literally.
func word(v string) string { return "'" + strings.ReplaceAll(v, "'", `'\''`) + "'" }

// writeTorchrun writes one script for all ranks, because a process under torchrun learns its
// rank only once it runs. A wrong number of processes would make every weight wrong, so the
// script refuses it.
func writeTorchrun(b *bytes.Buffer, s Sizes) error {
	ranks := s.Ranks()
	fmt.Fprintf(b, `# Evenkeel sizes, one case per rank. POSIX shell, to be sourced where RANK is set:
#   torchrun ... --no-python sh -c '. ./sizes.sh && exec python train.py "$@"' sh ARGUMENTS
if [ "${WORLD_SIZE:-%[1]d}" != %[1]d ]; then
  echo "evenkeel: these sizes are for %[1]d ranks, WORLD_SIZE is $WORLD_SIZE" >&2
  return 1 2>/dev/null || exit 1
fi
case "${RANK-}" in
`, len(ranks))
	names := []string{}
	for i, n := range ranks {
		fmt.Fprintf(b, "%d)", i)
		for _, v := range environment(s, i, n) {
			fmt.Fprintf(b, " %s=%s", v.name, v.word)
			if i == 0 {
				names = append(names, v.name)
			}
		}
		b.WriteString(" ;;\n")
	}
	fmt.Fprintf(b, `*)
  echo "evenkeel: RANK is '${RANK-}', these sizes are for ranks 0 to %d" >&2
  return 1 2>/dev/null || exit 1
  ;;
esac
export %s
`, len(ranks)-1, strings.Join(names, " "))
	return nil
}

// writeDeepSpeed writes a fragment that DeepSpeed accepts on every rank. DeepSpeed has one micro-batch for all ranks and asserts
// train_batch_size = micro-batch x accumulation x ranks. It gets the mean micro-batch, rounded down; if that differs from the
// shares, "unequal" says so. The real sizes are under "evenkeel", a key that it ignores.
func writeDeepSpeed(b *bytes.Buffer, s Sizes) error {
	ranks := s.Ranks()
	accumulate, equal := ranks[0].MicroSteps, true
	for _, n := range ranks {
		if n.MicroSteps != accumulate {
			return fmt.Errorf("%w: DeepSpeed needs the same number of micro-steps on all ranks, and these sizes have %d and %d: evenkeel export --format deepspeed computes them", ErrFormat, accumulate, n.MicroSteps)
		}
		equal = equal && n.Share == ranks[0].Share
	}
	micro := max(s.GlobalBatch/(len(ranks)*accumulate), 1)
	unequal := ""
	if !equal || micro*accumulate*len(ranks) != s.GlobalBatch {
		unequal = fmt.Sprintf("    \"unequal\": %s,\n", quoted(fmt.Sprintf("DeepSpeed cannot express these shares; the sizes that it reads are a mean. "+
			"The script must feed each rank its share in %d micro-steps and weight them.", accumulate)))
	}
	fmt.Fprintf(b, `{
  "train_batch_size": %d,
  "train_micro_batch_size_per_gpu": %d,
  "gradient_accumulation_steps": %d,
  "evenkeel": {
    "version": %d,
    "workload": %s,
    "global_batch": %d,
%s%s    "ranks": [
`, micro*accumulate*len(ranks), micro, accumulate, s.Version, quoted(s.Workload), s.GlobalBatch,
		unequal, s.optional("    "))
	for i, n := range ranks {
		if i > 0 {
			b.WriteString(",\n")
		}
		b.WriteString("      " + quoted(n))
	}
	b.WriteString("\n    ]\n  }\n}\n")
	return nil
}

// maxConfigMap is the most bytes that the keys and values of a ConfigMap may have together.
const maxConfigMap = 1 << 20

// writeKubernetes writes a ConfigMap whose keys become files when it is mounted.
func writeKubernetes(b *bytes.Buffer, s Sizes) error {
	fmt.Fprintf(b, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  labels:\n    app.kubernetes.io/name: evenkeel\ndata:\n", label("evenkeel-"+s.Workload))
	total := 0
	add := func(key string, content []byte) {
		total += len(key) + len(content)
		// A literal block keeps the text as it is. Its first line must not begin with a
		// blank; only later lines of sizes.json do.
		fmt.Fprintf(b, "  %s: |\n", key)
		for line := range strings.Lines(string(content)) {
			b.WriteString("    " + line)
		}
	}
	for _, f := range []struct {
		key   string
		write func(*bytes.Buffer, Sizes) error
	}{{"sizes.json", writeJSON}, {"sizes.sh", writeTorchrun}} {
		var content bytes.Buffer
		if err := f.write(&content, s); err != nil {
			return err
		}
		add(f.key, content.Bytes())
	}
	for i, n := range s.Ranks() {
		var content bytes.Buffer
		for _, v := range environment(s, i, n) {
			fmt.Fprintf(&content, "%s=%s\n", v.name, v.word)
		}
		add(fmt.Sprintf("rank-%d.env", i), content.Bytes())
	}
	if total > maxConfigMap {
		return fmt.Errorf("%w: %d bytes, and Kubernetes allows a ConfigMap %d; put the json format on a shared volume instead", errTooLarge, total, maxConfigMap)
	}
	return nil
}

// label makes a DNS label (RFC 1123) of text: 1 to 63 lower-case letters, digits and
// hyphens, a letter or digit at both ends. text begins with a letter.
func label(text string) string {
	out := []byte{}
	for _, r := range strings.ToLower(text) {
		switch {
		case 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
			out = append(out, byte(r))
		case out[len(out)-1] != '-':
			out = append(out, '-')
		}
	}
	return strings.TrimRight(string(out[:min(len(out), 63)]), "-")
}
