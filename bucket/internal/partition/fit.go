package partition

import (
	"fmt"
	"sort"

	"evenkeel/bucket"
	"evenkeel/bucket/internal/input"
)

// Fit finds the longest length that fits into a batch. As the plan says, it refuses longer samples, truncates them to that length or drops
// them. It changes the histogram and returns it up to that length, and sets the limit and the number of dropped samples in the plan.
func Fit(p *bucket.Plan, hist []uint32, c bucket.Cost) ([]uint32, error) {
	longest := len(hist) - 1
	p.Limit = longest
	if c.Cap(longest) < 1 {
		fits := sort.Search(longest, func(n int) bool { return c.Cap(n+1) < 1 })
		n := 0
		for _, of := range hist[fits+1:] {
			n += int(of)
		}
		if p.Overlong == bucket.Refuse || fits == 0 {
			samples, verb := fmt.Sprint(n, " samples"), "fit"
			if n == 1 {
				samples, verb = "1 sample", "fits"
			}
			return nil, input.Errorf("%s longer than %d %s into no batch (the longest is %d): the cost table has no trial of such a length that ran; profile longer lengths, or skip or truncate such samples (--overlong skip)",
				samples, fits, verb, longest)
		}
		p.Limit = fits
		if p.Overlong == bucket.Skip {
			p.Skipped = n
			if n == p.Samples {
				return nil, input.Errorf("every sample is longer than %d and would be skipped", fits)
			}
		} else {
			hist[fits] += uint32(n)
		}
	}
	return hist[:p.Limit+1], nil
}
