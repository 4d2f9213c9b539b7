package cluster

import (
	"math"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStressValidate(t *testing.T) {
	c := Conditions{Stress: Stress{
		Racks:   Racks{Size: MaxNodes + 1, Episode: Episode{Rate: 2, Excess: Spread{9, 4}, AtStart: -1}},
		Diurnal: Diurnal{Amplitude: 4}, Creep: Creep{Share: 0.5, Most: 101}, Modes: Modes{Share: 2, Excess: 9, Rounds: 0.5},
		Wrong: Wrong{Share: math.NaN(), Factor: 0.5}, Clocks: Clocks{SD: -1},
	}}
	want := `racks.size is 100001; it must lie in 1..100000
racks.rate is 2; it must lie in 0..1
racks.rounds is 0; it must lie in 1..1000000000
racks.excess.median is 9; it must lie in 0..8
racks.excess.sigma is 4; it must lie in 0..3
racks.at_start is -1; it must lie in 0..1
diurnal.amplitude is 4; it must lie in 0..3
diurnal.rounds is 0; it must lie in 1..1000000000
creep.rounds is 0; it must lie in 1..1000000000
creep.most is 101; it must lie in 1..100
modes.share is 2; it must lie in 0..1
modes.excess is 9; it must lie in 0..8
modes.rounds is 0.5; it must lie in 1..1000000000
wrong.share is NaN; it must lie in 0..1
wrong.factor is 0.5; it must lie in 1..100
clocks.sd is -1; it must lie in 0..1000`
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// A preset of Stress is what all presets share and nothing else that was fitted.
func TestStressPresets(t *testing.T) {
	count := 0
	for _, name := range Presets() {
		c, _ := Preset(name)
		if c.Stress == (Stress{}) {
			continue
		}
		count++
		if c.Stress = (Stress{}); !cmp.Equal(c, base()) {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if count != reflect.TypeFor[Stress]().NumField() {
		t.Errorf("%d presets", count)
	}
}
