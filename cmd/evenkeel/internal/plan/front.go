package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/cmd/evenkeel/internal/cli"
	"github.com/evenkeel/evenkeel/planner"
)

// prices of an hour, by device.
type prices map[string]float64

// UnmarshalText reads prices as a=1,b=2.
func (p *prices) UnmarshalText(text []byte) error {
	if *p == nil {
		*p = prices{}
	}
	for _, each := range strings.Split(string(text), ",") {
		device, value, _ := strings.Cut(each, "=")
		price, err := strconv.ParseFloat(value, 64)
		if err != nil || device == "" {
			return fmt.Errorf("%.40q; want DEVICE=X, X a number", each)
		}
		if _, twice := (*p)[device]; twice {
			return fmt.Errorf("%.40s is given twice", device)
		}
		(*p)[device] = price
	}
	return nil
}

// pricedPlan is a plan of the front in the JSON document of search.
type pricedPlan struct {
	Plan    *planner.Plan `json:"plan"`
	Seconds float64       `json:"seconds"`
	Price   float64       `json:"price"` // of an iteration
}

// front searches the plans by time and price, if prices are given.
func (c *searchCmd) front(a *cli.App, job *planner.Job, r *planner.Result) ([]pricedPlan, error) {
	if len(c.Price) == 0 {
		return nil, nil
	}
	report, clear := a.Progress("searching parts of the cluster")
	all, err := job.Front(a.Ctx, c.Price, planner.SearchOptions{For: c.For, Schedule: c.Schedule}, r.Plan, report)
	clear()
	if err != nil && a.Ctx.Err() == nil { // interrupted: the plan that was found is printed alone
		return nil, err
	}
	front := make([]pricedPlan, len(all))
	for i, p := range all {
		front[i] = pricedPlan{p.Plan, p.Plan.Predicted.Simulated, p.Price}
	}
	return front, nil
}

// printFront prints plans by time and price.
func printFront(a *cli.App, front []pricedPlan) error {
	if len(front) == 0 {
		return nil
	}
	var rows [][]string
	for _, p := range front {
		count := map[string]int{}
		for _, s := range p.Plan.Stages[:p.Plan.Pipeline()] {
			for _, g := range s.Groups {
				count[g.Device] += g.Count
			}
		}
		var devices []string
		for _, d := range slices.Sorted(maps.Keys(count)) {
			devices = append(devices, fmt.Sprintf("%d %s", count[d], d))
		}
		samples := float64(p.Plan.GlobalBatch)
		rows = append(rows, []string{cli.Seconds(p.Seconds), fmt.Sprintf("%.1f", samples/p.Seconds), fmt.Sprintf("%.4g", p.Price), fmt.Sprintf("%.4g", p.Price/samples*1e6), cli.Count(len(p.Plan.Stages), "stage"), strings.Join(devices, ", ")})
	}
	fmt.Fprintln(a.Out, "\nPlans by time and price (each is the quickest found at its price; --json has them whole):")
	return cli.PrintLines(a.Out, cli.Table([]cli.Column{cli.Right("iteration"), cli.Right("samples/s"), cli.Right("price"), cli.Right("of a million samples"), cli.Left("plan"), cli.Left("devices")}, rows))
}
