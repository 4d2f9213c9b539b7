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
		ends := rapid.SliceOfN(rapid.SampledFrom([]string{"\n", "\r\n", "\n\n", " \n", ",7\n"}), 1, 5).Draw(t, "ends")
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
		bad := rapid.SampledFrom([]string{"0", "00000000", "16777217", "-1", "x", "123456789", "1e3"}).Draw(t, "bad")
		_, err := ReadLengths(strings.NewReader(text.String()+bad+"\n5\n"), "f", LengthsOptions{})
		if prefix := fmt.Sprintf("f:%d: ", lines+1); !errors.Is(err, ErrInput) || !strings.HasPrefix(err.Error(), prefix) {
			t.Fatalf("%v, want %s", err, prefix)
		}
	})
}
