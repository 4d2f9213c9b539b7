package lengthfile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"evenkeel/bucket"
	"evenkeel/internal/badinput"
)

// The quick way through plain lines gives what the long way gives, across buffers too, and
// a fault is named by its own line.
func TestReadLengthsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Uint32Range(1, bucket.MaxLength), 1, 50).Draw(t, "values")
		times := rapid.SampledFrom([]int{1, 2, 3000}).Draw(t, "times")
		ends := rapid.SliceOfN(rapid.SampledFrom([]string{"\n", "\r\n", " \n", ",7\n", ".0\n", "e0\n", ",\"a \"\"b\"\", c\n\nd\"\n"}), 1, 5).Draw(t, "ends")
		var text strings.Builder
		var want bucket.Lengths
		lines := 0
		for range times {
			for i, v := range values {
				end := "\n"
				if i%7 == 0 {
					end = ends[i%len(ends)]
				}
				fmt.Fprint(&text, v, end)
				lines += strings.Count(end, "\n")
				want = append(want, v)
			}
		}
		for _, scale := range []float64{0, 1} {
			got, err := Read(strings.NewReader(text.String()), "f", Options{Column: "1", Scale: scale})
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("scale %v: %d lengths, want %d; %v", scale, len(got), len(want), err)
			}
		}
		bad := rapid.SampledFrom([]string{"0", "00000000", "16777217", "-1", "x", "123456789", "1e9", "1.5", "", " ", "\"1", "\"x\""}).Draw(t, "bad")
		_, err := Read(strings.NewReader(text.String()+bad+"\n5\n"), "f", Options{Column: "1"})
		if prefix := fmt.Sprintf("f:%d: ", lines+1); !badinput.Is(err) || !strings.HasPrefix(err.Error(), prefix) {
			t.Fatalf("%v, want %s", err, prefix)
		}
	})
}

func TestReadLengthsForms(t *testing.T) {
	for _, c := range []struct {
		text, column string
		want         bucket.Lengths
		fault        string
	}{
		{"3\n4\n\n\n", "", bucket.Lengths{3, 4}, ""}, // blank lines at the end
		{"3\n\n4\n", "", nil, "f:2: a blank line"},
		{"\n3\n", "", nil, "f:1: a blank line"},
		{"\xef\xbb\xbf3\n4\n", "", bucket.Lengths{3, 4}, ""},
		{"\xef\xbb\xbfwords,more\n3,4\n", "words", bucket.Lengths{3}, ""},
		{"\xff\xfe3\x00", "", nil, "UTF-16"},
		{"\xfe\xff\x003", "", nil, "UTF-16"},
		{"1e3\n2.0\n", "", bucket.Lengths{1000, 2}, ""},
		{"1e9\n", "", nil, "f:1: length 1000000000 is above 16777216"},
		{"text,\"words, all\"\n\"a, \"\"b\"\"\n\nc\",\"7\"\nd,8\n", "words, all", nil, `no column "words"`},
		{"text,\"words\"\n\"a, \"\"b\"\"\n\nc\",\"7\"\nd,8\n", "words", bucket.Lengths{7, 8}, ""},
		{"text,words\n\"a\nb\",7\nd,x\n", "2", nil, `f:4: field 2: length "x"`},
		{"text,words\n\"a,7\n", "2", nil, "f:2: quoted fields"},
		{"a,b\n1,2\n3\n", "a,b", nil, "f:3: field 2: missing"},
	} {
		got, err := Read(strings.NewReader(c.text), "f", Options{Column: c.column})
		if c.fault == "" && (err != nil || !slices.Equal(got, c.want)) || c.fault != "" && (!badinput.Is(err) || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%q: %v, %v; want %v %s", c.text, got, err, c.want, c.fault)
		}
	}
}

// Two columns of one sample: one of both may be 0, unless nothing is left. Scaled numbers are those of decimal fractions.
func TestPairsAndScale(t *testing.T) {
	for _, c := range []struct {
		text, pair string
		scale      float64
		want       bucket.Lengths
		fault      string
	}{
		{"10,0\n0,3\n", "sum", 0, bucket.Lengths{10, 3}, ""},
		{"10,0\n", "max", 0, bucket.Lengths{10}, ""},
		{"16,14\n", "product", 0, bucket.Lengths{224}, ""},
		{"224,200\n", "product", 1. / 14, bucket.Lengths{16 * 15}, ""},
		{"10,0\n", "product", 0, nil, "f:1: length 0 is below 1"},
		{"0,0\n", "sum", 0, nil, "f:1: length 0 is below 1"},
		{"5000,5000\n", "product", 0, nil, "f:1: length 25000000 is above"},
		{"1.1,0\n2.3,0.001\n", "sum", 100, bucket.Lengths{110, 231}, ""},
	} {
		got, err := Read(strings.NewReader(c.text), "f", Options{Column: "1,2", Pair: c.pair, Scale: c.scale})
		if c.fault == "" && (err != nil || !slices.Equal(got, c.want)) || c.fault != "" && (!badinput.Is(err) || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%q: %v, %v; want %v %s", c.text, got, err, c.want, c.fault)
		}
	}
	for i := 1; i < 5000; i++ { // as printed with two decimals
		if got, err := Read(strings.NewReader(fmt.Sprintf("%.2f\n", float64(i)/100)), "f", Options{Scale: 100}); err != nil || got[0] != uint32(i) {
			t.Fatalf("%.2f: %v, %v", float64(i)/100, got, err)
		}
	}
}

func TestBadLengths(t *testing.T) {
	for text, want := range map[string]string{
		"": "no lengths", "5\n0\n": "f:2: length 0 is below 1", "5\n-3\n": "f:2: field 1: length -3 is below 0",
		"5\nx\n": `f:2: field 1: length "x" is not a number`, "1.5\n": "give a scale", "len\n": `f:1: field 1: length "len" is not a number`, "len,b\n": "f:1: 2 columns: name one (--column), by its header or by its number: len,b",
	} {
		if _, err := Read(strings.NewReader(text), "f", Options{}); !badinput.Is(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func FuzzReadLengths(f *testing.F) {
	for _, s := range []string{"3\n4\n", "a,b\n1,2\n", "1.5\n", "\x1f\x8b", "-1"} {
		f.Add([]byte(s), "", 0.0)
		f.Add([]byte(s), "1,2", 2.0)
	}
	f.Fuzz(func(t *testing.T, data []byte, column string, scale float64) {
		l, err := Read(bytes.NewReader(data), "f", Options{Column: column, Scale: scale})
		if err == nil && len(l) == 0 {
			t.Fatal("no lengths and no error")
		}
		for _, v := range l {
			if v < 1 || v > bucket.MaxLength {
				t.Fatalf("length %d", v)
			}
		}
	})
}
