// Command galvatron.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/evenkeel/evenkeel/planner"
)

func main() {
	data := flag.String("data", "../shared/data/planner", "folder with galvatron/")
	flag.Parse()
	p, err := readProfile(*data+"/galvatron", "llama2-7b", 2048)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	base := setting{layers: 32, hidden: 4096, sequence: 2048, batch: 64, devices: 8, zero2: true, flush: true, async: true, buffer: false, tpComms: 6, halfVocab: true, lookup: true}
	for _, gb := range []int{38, 20, 16} {
		t := base
		t.limit = gb * 1024
		m := &model{p, &t}
		start := time.Now()
		conditions := m.conditions()
		var all []planner.Costs
		for _, c := range conditions {
			all = append(all, c)
		}
		found, err := planner.Search(context.Background(), all, planner.SearchOptions{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(gb, len(all), found.Best[0].Total, found.Bound, found.States, time.Since(start))
		for _, b := range found.Best[:min(6, len(found.Best))] {
			best := conditions[b.Condition].plan(b)
			fmt.Println(b.Total, best.seconds, best.chunks, best.division, best.vocabulary, counts(best))
		}
	}
}

func counts(p *plan) map[string]int {
	c := map[string]int{}
	for _, s := range p.layers {
		c[s.String()]++
	}
	return c
}
