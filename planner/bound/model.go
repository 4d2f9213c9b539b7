package bound

import (
	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/planner/costmodel"
	"github.com/evenkeel/evenkeel/planner/layerprofile"
)

// model is a cost model of plans that hold shared parameters alike, with what is looked at often.
type model struct {
	*costmodel.Model
	classes []cluster.Class
	layers  []layerprofile.Layer
	kindOf  []int32
	options costmodel.Options
}

// parts are the models of all that plans may be.
func parts(m *costmodel.Model) (all []*model) {
	for _, p := range m.Parts() {
		all = append(all, &model{p, p.Classes(), p.Layers(), p.Kinds(), p.Choices()})
	}
	return all
}
