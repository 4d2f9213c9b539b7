package main

import (
	"cmp"
	"slices"
)

// mix is some layers of a stage, each with a strategy: none of as many layers needs less memory and is as fast.
type mix struct {
	memory      int
	plain, sync float64 // seconds of a micro-batch without and with gradients reduced
	way         int     // strategy of one of the layers
	rest        *mix    // the other layers
}

// fronts are the mixes of 0, 1, ... layers that fit into room, as layers of a model are alike: only how many run in which
// way counts.
func fronts(memory []int, plain, sync []float64, layers, room int) [][]*mix {
	var ways []*mix
	for w := range memory {
		ways = append(ways, &mix{memory[w], plain[w], sync[w], w, nil})
	}
	ways = leastOf(ways)
	all := make([][]*mix, layers+1)
	all[0] = []*mix{{}}
	for _, w := range ways {
		for n := 1; n <= layers; n++ {
			joined := slices.Clone(all[n])
			for _, rest := range all[n-1] {
				if rest.memory+w.memory <= room {
					joined = append(joined, &mix{rest.memory + w.memory, rest.plain + w.plain, rest.sync + w.sync, w.way, rest})
				}
			}
			all[n] = leastOf(joined)
		}
	}
	return all
}

// leastOf drops what another one is as good as in memory and in both times.
func leastOf(all []*mix) []*mix {
	slices.SortStableFunc(all, func(a, b *mix) int {
		return cmp.Or(cmp.Compare(a.memory, b.memory), cmp.Compare(a.plain, b.plain), cmp.Compare(a.sync, b.sync))
	})
	kept := all[:0]
	var stairs []*mix // plain rises, sync falls
	for _, a := range all {
		at, _ := slices.BinarySearchFunc(stairs, a, func(s, a *mix) int {
			if s.plain <= a.plain {
				return -1
			}
			return 1
		})
		if at > 0 && stairs[at-1].sync <= a.sync {
			continue
		}
		end := at
		for end < len(stairs) && stairs[end].sync >= a.sync {
			end++
		}
		stairs = slices.Replace(stairs, at, end, a)
		kept = append(kept, a)
	}
	return kept
}
