package profile

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestReaderErrors(t *testing.T) {
	many := header + "\n" + strings.Repeat("d,w,0,1,\n", 25)
	var twenty []string
	for line := 2; line < 22; line++ {
		twenty = append(twenty, fmt.Sprintf("f.csv:%d: micro_batch: 0 is outside 1 to 1000000 samples", line))
	}
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "f.csv: empty: the first line must be device,workload,micro_batch,seconds,peak_bytes"},
		{"only a header", header + "\n", "f.csv: holds no measurement after the header"},
		{"missing column", "device,workload,micro_batch,seconds\n", "f.csv:1: peak_bytes: column is missing: the first line must be " + header},
		{"other order", "workload,device,micro_batch,seconds,peak_bytes\n", "f.csv:1: columns are in another order or doubled: the first line must be " + header},
		{"extra column", header + ",note\n", "f.csv:1: columns are in another order or doubled: the first line must be " + header},
		{"short row", header + "\nd,w,1,2\n", "f.csv:2: 4 fields, want the 5 of the header (peak_bytes may be empty, its comma may not be left out)"},
		{"trailing junk", header + "\nd,w,1,2,3,4\n", "f.csv:2: 6 fields, want the 5 of the header (peak_bytes may be empty, its comma may not be left out)"},
		{"zero time", header + "\nd,w,1,0,\n", "f.csv:2: seconds: 0 is not above zero: give the measured seconds of forward and backward, or leave the row out"},
		{"negative time", header + "\nd,w,1,-2.5,\n", "f.csv:2: seconds: -2.5 is not above zero: give the measured seconds of forward and backward, or leave the row out"},
		{"not a number", header + "\nd,w,1,NaN,\n", `f.csv:2: seconds: "NaN" is not a finite number of seconds`},
		{"infinite", header + "\nd,w,1,+Inf,\n", `f.csv:2: seconds: "+Inf" is not a finite number of seconds`},
		{"overflow", header + "\nd,w,1,1e999,\n", `f.csv:2: seconds: "1e999" is not a finite number of seconds`},
		{"words", header + "\nd,w,one,fast,big\n", "f.csv:2: micro_batch: \"one\" is not a whole number of samples\n" +
			"f.csv:2: seconds: \"fast\" is not a finite number of seconds\n" +
			"f.csv:2: peak_bytes: \"big\" is not a whole number of bytes: leave it empty where it was not measured"},
		{"milliseconds", header + "\nd,w,1,2e6,\n", "f.csv:2: seconds: 2e6 is outside 1e-09 to 1e+06: the unit is seconds"},
		{"negative peak", header + "\nd,w,1,1,-5\n", "f.csv:2: peak_bytes: -5 is outside 0 to 1125899906842624 bytes: leave it empty where it was not measured"},
		{"unsorted", header + "\nd,w,2,1,\nd,w,1,1,\n", "f.csv:3: micro_batch: 1 comes after 2 for w on d: sort the rows and keep one per micro-batch"},
		{"doubled", header + "\nd,w,2,1,\ne,w,2,1,\nd,w,2,1,\n", "f.csv:4: micro_batch: 2 appears twice for w on d: sort the rows and keep one per micro-batch"},
		{"too large a batch", header + "\nd,w,1000001,1,\n", "f.csv:2: micro_batch: 1000001 is outside 1 to 1000000 samples"},
		{"no device", header + "\n,w,1,1,\n", "f.csv:2: device: is empty"},
		{"odd name", header + "\nd,a b,1,1,\n", `f.csv:2: workload: "a b" may hold letters, digits and, not first, - . _ only`},
		{"long name", header + "\nd," + strings.Repeat("w", 65) + ",1,1,\n", `f.csv:2: workload: "` + strings.Repeat("w", 40) + `..." is longer than 64 bytes`},
		{"bare quote", header + "\nd,w\",1,1,\n", "f.csv:2: not CSV: bare \" in non-quoted-field"},
		{"twenty and more", many, strings.Join(twenty, "\n") + "\nf.csv: only the first 20 problems are listed"},
		{"blank line counts", header + "\n\nd,w,1,0,\n", "f.csv:3: seconds: 0 is not above zero: give the measured seconds of forward and backward, or leave the row out"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cat Catalogue
			err := cat.AddReader("f.csv", strings.NewReader(c.in))
			if err == nil || err.Error() != c.want {
				t.Fatalf("got  %v\nwant %v", err, c.want)
			}
			var fe *FileError
			if !errors.As(err, &fe) || !errors.Is(err, ErrFormat) || len(fe.Problems) > maxProblems {
				t.Errorf("type %T", err)
			}
			if len(cat.Profiles()) > 0 {
				t.Error("something was added")
			}
		})
	}
}

func TestReaderLimits(t *testing.T) {
	var cat Catalogue
	var b bytes.Buffer
	b.WriteString(header + "\n")
	for i := range maxPoints + 1 {
		fmt.Fprintf(&b, "d,w,%d,1,\n", i+1)
	}
	want := "f.csv:4098: more than 4096 micro-batches for w on d"
	if err := cat.AddReader("f.csv", &b); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	want = "f.csv: larger than 16 MiB: split it by device"
	if err := cat.AddReader("f.csv", strings.NewReader(strings.Repeat("x", maxFileBytes+1))); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	b.Reset()
	b.WriteString(header + "\n")
	for i := range maxRows + 1 {
		fmt.Fprintf(&b, "d%d,w,%d,1,\n", i/4000, i%4000+1)
	}
	want = "f.csv:200002: more than 200000 measurements: split the file by device"
	if err := cat.AddReader("f.csv", &b); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What is read is what was written: mixed series, CRLF, quotes, zero as not measured.
func TestReaderAccepts(t *testing.T) {
	in := strings.ReplaceAll(header+"\nd,w,1,0.5,100\n\"e\",w,4,1e-3,\nd,w,3,0.25,0\n", "\n", "\r\n")
	var c Catalogue
	if err := c.AddReader("f.csv", strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	p, err := c.Lookup("d", "w")
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Points) != 2 || p.Points[0] != (Point{1, 0.5, 100}) || p.Points[1] != (Point{3, 0.25, 0}) || p.Source != "f.csv" {
		t.Errorf("%+v", p)
	}
	if p.smoothed != 2 || p.Seconds(1) != 0.375 {
		t.Errorf("a falling time is smoothed, got %d points, %v s", p.smoothed, p.Seconds(1))
	}
	if d, ok := c.Device("e"); !ok || d.MemoryBytes != 0 || d.Split != "" {
		t.Errorf("device %+v %v", d, ok)
	}
}

// FuzzReader feeds anything: no panic; what is accepted gives sane curves.
func FuzzReader(f *testing.F) {
	f.Add([]byte(header + "\nd,w,1,0.5,100\nd,w,2,0.7,\n"))
	f.Add([]byte(header + "\nd,w,7,1e-9,1\nd,w,1000000,1e6,1125899906842624\n"))
	f.Add([]byte(header + "\nd,w,1,3,\nd,w,2,2,\nd,w,3,1,\nd,w,4,1,\nd,w,5,1,\n"))
	f.Add([]byte("\"\n,"))
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := parse("f.csv", bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("%v does not wrap ErrFormat", err)
			}
			return
		}
		if len(read) == 0 {
			t.Fatal("accepted, but empty")
		}
		for _, p := range read {
			sane(t, p)
		}
	})
}

func sane(t testing.TB, p *Profile) {
	t.Helper()
	last := p.Seconds(0)
	for _, q := range p.Points {
		for _, b := range [...]float64{float64(q.MicroBatch) - 0.5, float64(q.MicroBatch), float64(q.MicroBatch) + 0.5} {
			s := p.Seconds(b)
			if !(s >= last) || math.IsInf(s, 0) || !(s > 0) {
				t.Fatalf("%s on %s: Seconds(%v) = %v after %v", p.Workload, p.Device, b, s, last)
			}
			last = s
			if got := p.Samples(s); math.IsNaN(got) || got < 0 {
				t.Fatalf("Samples(%v) = %v", s, got)
			}
		}
		if peak, ok := p.PeakBytes(q.MicroBatch); ok && peak < q.PeakBytes {
			t.Fatalf("PeakBytes(%d) = %d under %d", q.MicroBatch, peak, q.PeakBytes)
		}
	}
	f := p.Fit()
	for _, v := range [...]float64{f.Alpha, f.Beta, f.R2, f.MaxRelError, f.Floor, f.MemoryR2, p.PerSample()} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Fatalf("fit %+v", f)
		}
	}
	if !(p.PerSample() > 0) || p.MemoryLimit(1<<40) < 0 {
		t.Fatalf("per sample %v", p.PerSample())
	}
}
