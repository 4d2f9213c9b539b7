package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"evenkeel/bucket"
	"evenkeel/bucket/lengthfile"
	"evenkeel/bucket/paired"
	"evenkeel/bucket/plain"
)

// coder is the cost of an encoder and a decoder: t = a + B (c S + d T + e S^2 + f T^2 + g S T), with memory for so many tokens, of which one of
// a target counts as w. Attention within the source, within the target, and of the target to the source.
type coder struct{ a, c, d, e, f, g, memory, w float64 }

func (q coder) Seconds(s, t, n int) float64 {
	x, y := float64(s), float64(t)
	return q.a + float64(n)*(q.c*x+q.d*y+q.e*x*x+q.f*y*y+q.g*x*y)
}

func (q coder) Cap(s, t int) int { return int(q.memory / (float64(s) + q.w*float64(t))) }

// oneLength is what who knows one length believes of a coder: sources and targets are so many parts of it.
type oneLength struct {
	coder
	source, target float64
}

func (o oneLength) parts(l int) (s, t int) {
	return max(1, int(math.Ceil(o.source*float64(l)))), max(1, int(math.Ceil(o.target*float64(l))))
}

func (o oneLength) Seconds(l, n int) float64 { s, t := o.parts(l); return o.coder.Seconds(s, t, n) }
func (o oneLength) Cap(l int) int            { s, t := o.parts(l); return o.coder.Cap(s, t) }
func (oneLength) Breaks(int) []int           { return nil }

// pairSetting is a data set of two lengths, and its cost.
type pairSetting struct {
	name             string
	sources, targets bucket.Lengths
	cost             coder
}

// pairSettings are translations and summaries by chance, and the real files of two columns.
func pairSettings(folder string) ([]pairSetting, error) {
	attention := coder{.08, 4e-5, 6e-5, 4e-9, 6e-9, 4e-9, 65536, 1.5}
	linear := coder{12 * .000677711, 12 * .00196968 / 512, 18 * .00196968 / 512, 0, 0, 0, 16384, 1.5}
	r := rand.New(rand.NewPCG(1, 2))
	translations := pairSetting{name: "translations", cost: attention}
	summaries := pairSetting{name: "summaries", cost: attention}
	length := func(x, most float64) uint32 { return uint32(max(1, min(most, x))) }
	for range 300_000 {
		s := 25 * math.Exp(.6*r.NormFloat64())
		translations.sources = append(translations.sources, length(s, 250))
		translations.targets = append(translations.targets, length(1.1*s*math.Exp(.22*r.NormFloat64()), 250))
		s = 600 * math.Exp(.8*r.NormFloat64())
		summaries.sources = append(summaries.sources, length(s, 4096))
		summaries.targets = append(summaries.targets, length(60*math.Exp(.6*r.NormFloat64())*math.Pow(s/600, .3), 1024))
	}
	out := []pairSetting{translations, summaries}
	for _, file := range []string{"multi30k_en_de_words.csv", "gsm8k_words.csv", "azure_llm_conv_tokens.csv"} {
		if folder == "" {
			break
		}
		s := pairSetting{cost: linear}
		if s.name, _, _ = strings.Cut(file, "_"); s.name == "azure" {
			s.cost.memory = 40960 // or a source and a target as long as its longest would not fit
		}
		for k, to := range []*bucket.Lengths{&s.sources, &s.targets} {
			var err error
			if *to, err = readLengths(folder, file, lengthfile.Options{Column: fmt.Sprint(k + 1)}); err != nil {
				return nil, err
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// pairsTable compares two lengths apart with one length made of both, and with fairseq's grouping, all by the same cost.
func pairsTable(folder string) error {
	all, err := pairSettings(folder)
	if err != nil {
		return err
	}
	fmt.Print("| data | rule | steps | epoch s | of the bound | p99 | padding of sources % | of targets % | out of memory | lost | meet again (in random steps) |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range all {
		l, err := paired.New(s.sources, s.targets)
		if err != nil {
			return err
		}
		none := 0.0
		p, err := paired.Make(l, s.cost, bucket.Config{Ranks: ranks})
		if err != nil {
			return err
		}
		q, err := paired.Make(l, s.cost, bucket.Config{Ranks: ranks, Mixing: &none})
		if err != nil {
			return err
		}
		judge := func(steps bucket.Steps) (bucket.Score, error) {
			return bucket.Judge(l.Kinds, steps, p.Cost(), p.Speeds, 0, nil)
		}
		row := func(rule, again string, steps bucket.Steps) error {
			x, err := judge(steps)
			if err != nil {
				return err
			}
			fmt.Printf("| %s | %s | %d | %.2f | %.4f | %.4f | %.1f | %.1f | %d | %d | %s |\n", s.name, rule, x.Steps, x.EpochSeconds, x.EpochSeconds/p.LowerBoundSeconds, x.ImbalanceP99,
				100*x.SourcePadding, 100*x.TargetPadding, x.OutOfMemory, x.Lost, again)
			return nil
		}
		for _, one := range []bool{false, true} {
			rule, believed, both := "one length: the longer of both", oneLength{s.cost, 1, 1}, bucket.Lengths{}
			for i := range s.sources {
				both = append(both, max(s.sources[i], s.targets[i]))
			}
			if one {
				share := float64(total(s.sources)) / float64(total(s.sources)+total(s.targets))
				rule, believed = "one length: the sum of both", oneLength{s.cost, share, 1 - share}
				for i := range both {
					both[i] = s.sources[i] + s.targets[i]
				}
			}
			old, err := plain.Make(both, believed, bucket.Config{Ranks: ranks})
			if err != nil {
				return err
			}
			again, random := bucket.Recurrence(old, both, 1, 0)
			if err := row(rule, fmt.Sprintf("%.3f (%.3f)", again, random), old.Schedule(both, 1, 0).All()); err != nil {
				return err
			}
		}
		for _, keep := range []bool{false, true} {
			rule, steps, err := bestGrouped(s, judge, keep)
			if err != nil {
				return err
			}
			if err := row(rule, "", bucket.Listed(steps)); err != nil {
				return err
			}
		}
		for _, own := range []struct {
			rule string
			p    *paired.Plan
		}{{"evenkeel, apart, mixing 0", q}, {"**evenkeel, apart**", p}} {
			again, random := bucket.Recurrence(own.p, l.Kinds, 1, 0)
			if err := row(own.rule, fmt.Sprintf("%.3f (%.3f)", again, random), own.p.Schedule(l.Kinds, 1, 0).All()); err != nil {
				return err
			}
		}
	}
	return nil
}

// bestGrouped is fairseq's grouping of pairs: sorted by source, then target (LanguagePairDataset.ordered_indices), cut by the longer of
// both times the samples (num_tokens), in groups of a batch per rank; the last batches that fill no group are dropped, unless kept. The limit is the one of
// twelve with which a sample takes least and all fits.
func bestGrouped(s pairSetting, judge func(bucket.Steps) (bucket.Score, error), keep bool) (string, [][]bucket.RankBatch, error) {
	order, longer := numbers(len(s.sources)), slices.Clone(s.sources)
	for i, t := range s.targets {
		longer[i] = max(longer[i], t)
	}
	slices.SortStableFunc(order, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(s.sources[a], s.sources[b]), cmp.Compare(s.targets[a], s.targets[b]))
	})
	best, limit := [][]bucket.RankBatch(nil), 0
	least := math.Inf(1)
	for k := range 12 {
		tokens := int(s.cost.memory * math.Pow(.75, float64(k)))
		steps := dealt(byTokens(longer, order, tokens, 1), ranks, !keep)
		x, err := judge(bucket.Listed(steps))
		if err != nil {
			return "", nil, err
		}
		if per := x.EpochSeconds / float64(len(order)-x.Lost); x.OutOfMemory == 0 && per < least && len(steps) > 0 {
			best, least, limit = steps, per, tokens
		}
	}
	rule := fmt.Sprintf("fairseq, grouped, up to %d tokens", limit)
	if keep {
		rule += ", all steps kept"
	}
	return rule, best, nil
}

func total(l bucket.Lengths) (n int) {
	for _, v := range l {
		n += int(v)
	}
	return n
}
