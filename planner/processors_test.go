package planner

import (
	"context"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
)

// The outcome does not hang on how many processors refine.
func TestRefineOnOneProcessor(t *testing.T) {
	j := inventedJob(t, rand.New(rand.NewPCG(3, 25)), 9, 0)
	many, err := j.Search(context.Background(), SearchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	one, err := j.Search(context.Background(), SearchOptions{})
	if err != nil || !reflect.DeepEqual(one.Plan, many.Plan) {
		t.Errorf("%+v, %v; on several %+v", one, err, many.Plan)
	}
}
