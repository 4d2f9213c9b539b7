package bucket

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The quick way through plain lines gives what the long way gives, across buffers too, and
// a fault is named by its own line.
func TestReadLengthsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Uint32Range(1, MaxLength), 1, 50).Draw(t, "values")
		times := rapid.SampledFrom([]int{1, 2, 3000}).Draw(t, "times")
		ends := rapid.SliceOfN(rapid.SampledFrom([]string{"\n", "\r\n", " \n", ",7\n", ".0\n", "e0\n", ",\"a \"\"b\"\", c\n\nd\"\n"}), 1, 5).Draw(t, "ends")
		var text strings.Builder
		var want Lengths
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
			got, err := ReadLengths(strings.NewReader(text.String()), "f", LengthsOptions{Scale: scale, Bytes: int64(text.Len())})
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("scale %v: %d lengths, want %d; %v", scale, len(got), len(want), err)
			}
		}
		bad := rapid.SampledFrom([]string{"0", "00000000", "16777217", "-1", "x", "123456789", "1e9", "1.5", "", " ", "\"1", "\"x\""}).Draw(t, "bad")
		_, err := ReadLengths(strings.NewReader(text.String()+bad+"\n5\n"), "f", LengthsOptions{})
		if prefix := fmt.Sprintf("f:%d: ", lines+1); !errors.Is(err, ErrInput) || !strings.HasPrefix(err.Error(), prefix) {
			t.Fatalf("%v, want %s", err, prefix)
		}
	})
}

func TestReadLengthsForms(t *testing.T) {
	for _, c := range []struct {
		text, column string
		want         Lengths
		fault        string
	}{
		{"3\n4\n\n\n", "", Lengths{3, 4}, ""}, // blank lines at the end
		{"3\n\n4\n", "", nil, "f:2: a blank line"},
		{"\n3\n", "", nil, "f:1: a blank line"},
		{"\xef\xbb\xbf3\n4\n", "", Lengths{3, 4}, ""},
		{"\xef\xbb\xbfwords,more\n3,4\n", "words", Lengths{3}, ""},
		{"\xff\xfe3\x00", "", nil, "UTF-16"},
		{"1e3\n2.0\n", "", Lengths{1000, 2}, ""},
		{"1e9\n", "", nil, "f:1: field 1: length 1e9 is above 16777216"},
		{"text,\"words, all\"\n\"a, \"\"b\"\"\n\nc\",\"7\"\nd,8\n", "words, all", nil, `no column "words"`},
		{"text,\"words\"\n\"a, \"\"b\"\"\n\nc\",\"7\"\nd,8\n", "words", Lengths{7, 8}, ""},
		{"text,words\n\"a\nb\",7\nd,x\n", "2", nil, `f:4: field 2: length "x"`},
		{"text,words\n\"a,7\n", "2", nil, "f:2: quoted fields"},
		{"a,b\n1,2\n3\n", "a,b", nil, "f:3: field 2: missing"},
	} {
		got, err := ReadLengths(strings.NewReader(c.text), "f", LengthsOptions{Column: c.column})
		if c.fault == "" && (err != nil || !slices.Equal(got, c.want)) || c.fault != "" && (!errors.Is(err, ErrInput) || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%q: %v, %v; want %v %s", c.text, got, err, c.want, c.fault)
		}
	}
}
