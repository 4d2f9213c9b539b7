package bucket

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/parquet-go/parquet-go"

	"github.com/evenkeel/evenkeel/bucket/internal/input"
	"github.com/evenkeel/evenkeel/bucket/internal/lengthfile"
)

// parquetLine is a row of a schedule in Parquet.
type parquetLine struct {
	Step    int32    `parquet:"step"`
	Rank    int32    `parquet:"rank"`
	Weight  float64  `parquet:"weight"`
	Tokens  float64  `parquet:"token_weight,optional"`
	Samples []uint32 `parquet:"samples,list"`
}

const (
	metadataPrefix = "evenkeel."
	partsKey       = metadataPrefix + "parts" // as JSON
)

// metadata is the header's fields by their names in the file.
func (h *Header) metadata() map[string]any {
	return map[string]any{
		"format": &h.Format, "version": &h.Version, "samples": &h.Samples, "ranks": &h.Ranks, "data": &h.Data, "plan": &h.Plan,
		"seed": &h.Seed, "epoch": &h.Epoch, "from": &h.From, "steps": &h.Steps, "skipped": &h.Skipped, "limit": &h.Limit, "idle": &h.Idle, "packed": &h.Packed, "pairs": &h.Pairs,
	}
}

// WriteParquet writes the schedule as Parquet: a row per batch with the columns step,
// rank, weight, token_weight and samples (a list), and the header's fields as key-value metadata.
func WriteParquet(w io.Writer, h Header, s *Schedule) error {
	out := parquet.NewGenericWriter[parquetLine](w, parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(1<<14))
	for k, v := range h.metadata() {
		out.SetKeyValueMetadata(metadataPrefix+k, fmt.Sprint(reflect.ValueOf(v).Elem()))
	}
	if len(h.Parts) > 0 {
		text, err := json.Marshal(h.Parts)
		if err != nil {
			return fmt.Errorf("schedule: %w", err)
		}
		out.SetKeyValueMetadata(partsKey, string(text))
	}
	rows := make([]parquetLine, 1)
	err := s.Lines(h.From, func(l Line) error {
		rows[0] = parquetLine{int32(l.Step), int32(l.Rank), l.Weight, l.TokenWeight, l.Samples}
		_, err := out.Write(rows)
		return err
	})
	return errors.Join(err, out.Close())
}

// NewParquetScheduleReader reads a schedule that WriteParquet wrote, or another system with
// the same columns and metadata. Errors are of ErrInput.
func NewParquetScheduleReader(r io.ReaderAt, size int64, name string) (s *ScheduleReader, err error) {
	defer lengthfile.Recovered(name, &err)
	f, err := lengthfile.Open(r, size, name)
	if err != nil {
		return nil, err
	}
	s = &ScheduleReader{name: name}
	for k, v := range s.Header.metadata() {
		text, ok := f.Lookup(metadataPrefix + k)
		if p, isText := v.(*string); isText {
			*p = text
		} else if _, err := fmt.Sscan(text, v); ok && err != nil {
			return nil, input.Errorf("%s: metadata %s%s: %q is not a whole number", name, metadataPrefix, k, text)
		}
	}
	if text, ok := f.Lookup(partsKey); ok {
		if err := json.Unmarshal([]byte(text), &s.Header.Parts); err != nil {
			return nil, input.Errorf("%s: metadata %s: %v", name, partsKey, err)
		}
	}
	for _, c := range []string{"step", "rank", "samples"} {
		if f.Root().Column(c) == nil {
			return nil, input.Errorf("%s: not a schedule: no column %s", name, c)
		}
	}
	if err := s.Header.check(name); err != nil {
		return nil, err
	}
	s.before.Step = s.Header.From
	in := parquet.NewGenericReader[parquetLine](f)
	rows := make([]parquetLine, 64)
	var have []parquetLine
	s.next = func() (l Line, err error) {
		defer lengthfile.Recovered(name, &err)
		if len(have) == 0 {
			clear(rows) // their samples are handed out: they must not be written over
			n, err := in.Read(rows)
			if have = rows[:n]; n == 0 && errors.Is(err, io.EOF) {
				return l, io.EOF
			} else if n == 0 && err != nil {
				return l, input.Errorf("%s: row %d: %v", name, s.line+1, err)
			} else if n == 0 {
				return l, input.Errorf("%s: row %d: damaged Parquet", name, s.line+1)
			}
		}
		s.line++
		q := have[0]
		have = have[1:]
		l = Line{int(q.Step), int(q.Rank), q.Weight, q.Tokens, q.Samples}
		return l, s.check(l)
	}
	return s, nil
}
