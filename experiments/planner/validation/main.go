// Command validation compares the planner's cost model with measured training: the plans that Sailor's authors ran, and
// vTrain's runs. What is calibrated is calibrated on other rows than it is scored on.
//
//	go run ./experiments/planner/validation -data ../shared/data/planner
package main

import (
	"flag"
	"fmt"
	"log"
	"strings"

	"github.com/evenkeel/evenkeel/experiments/internal/results"
)

func main() {
	data := flag.String("data", "../shared/data/planner", "folder of the measurements")
	out := flag.String("results", "experiments/planner/RESULTS.md", "file whose section is written anew")
	flag.Parse()
	var b strings.Builder
	if err := sailor(&b, *data+"/sailor"); err != nil {
		log.Fatal(err)
	}
	if err := vtrain(&b, *data+"/vtrain"); err != nil {
		log.Fatal(err)
	}
	fmt.Print(b.String())
	if err := results.Replace(*out, "validation", b.String()); err != nil {
		log.Fatal(err)
	}
}
