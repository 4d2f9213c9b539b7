package export

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// scaled is the example with a learning rate meant for a quarter of the batch.
func scaled() Sizes {
	s := example()
	if err := s.ScaleLearningRate(Sqrt, 16, 0); err != nil {
		panic(err)
	}
	return s
}

func factor(t failer, scaling string, batch, reference int, noiseScale float64) float64 {
	f, err := LearningRateFactor(scaling, batch, reference, noiseScale)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestLearningRateFactor(t *testing.T) {
	for _, c := range []struct {
		scaling          string
		batch, reference int
		scale, want      float64
	}{
		{Linear, 512, 128, 0, 4}, {Linear, 32, 128, 1e9, 0.25}, {Sqrt, 512, 128, 0, 2}, {Sqrt, 32, 128, 7, 0.5},
		{AdaScale, 512, 128, 0, 1}, {AdaScale, 512, 128, 512, 2.5}, {AdaScale, 128, 512, 512, 0.4}, {AdaScale, 512, 128, 1e300, 4},
	} {
		if got := factor(t, c.scaling, c.batch, c.reference, c.scale); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Every rule: 1 where the batch is the reference, growing with the batch, back by the
// same factor. AdaScale: from 1 without noise to linear with noise alone, growing in
// between (falling below the reference), and the progress of a round by its efficiency.
func TestLearningRateProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 1<<20)
		batch, other, reference := size.Draw(t, "batch"), size.Draw(t, "other"), size.Draw(t, "reference")
		noise := rapid.Float64Range(0, 1e9)
		scale, more := noise.Draw(t, "scale"), noise.Draw(t, "more")
		for _, rule := range Scalings() {
			f := factor(t, rule, batch, reference, scale)
			if !near(factor(t, rule, reference, reference, scale), 1) {
				t.Fatalf("%s scales where nothing changed", rule)
			}
			if back := factor(t, rule, reference, batch, scale); !near(f*back, 1) {
				t.Fatalf("%s: %v there, %v back", rule, f, back)
			}
			if g := factor(t, rule, max(batch, other), reference, scale); g < f*(1-1e-12) {
				t.Fatalf("%s: %v for %d samples, %v for more", rule, f, batch, g)
			}
			r := float64(batch) / float64(reference)
			if f < min(1, r)*(1-1e-12) || f > max(1, r)*(1+1e-12) {
				t.Fatalf("%s: %v is not between 1 and %v", rule, f, r)
			}
		}
		gain := factor(t, AdaScale, batch, reference, scale)
		if least := factor(t, AdaScale, batch, reference, 0); least != 1 {
			t.Fatalf("%v without noise", least)
		}
		if most, r := factor(t, AdaScale, batch, reference, 1e18), factor(t, Linear, batch, reference, 0); math.Abs(most/r-1) > 1e-9 {
			t.Fatalf("%v with noise alone, linear is %v", most, r)
		}
		noisier := factor(t, AdaScale, batch, reference, max(scale, more))
		if math.Abs(math.Log(noisier)) < math.Abs(math.Log(gain))-1e-12 {
			t.Fatalf("%v, but %v with more noise", gain, noisier)
		}
		efficiency := (scale + float64(reference)) / (scale + float64(batch))
		if want := efficiency * float64(batch) / float64(reference); !near(gain, want) {
			t.Fatalf("gain %v, progress %v", gain, want)
		}
	})
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-12*math.Abs(b) }

func TestUnknownScaling(t *testing.T) {
	for name, hint := range map[string]string{"adscale": "did you mean adascale?", "SQRT": "did you mean sqrt?", "": "(known: linear, sqrt, adascale)"} {
		if _, err := LearningRateFactor(name, 2, 1, 0); !errors.Is(err, errScaling) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q: %v, want %s", name, err, hint)
		}
	}
	for _, scale := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := LearningRateFactor(AdaScale, 2, 1, scale); err == nil {
			t.Errorf("a noise scale of %v is taken", scale)
		}
	}
	s := example()
	if s.ScaleLearningRate(Linear, 0, 0) == nil || s.LearningRateScaling != "" {
		t.Error("a reference of 0 is taken")
	}
}

// Every form but the table carries the factor, and none where it is not asked.
func TestLearningRateForms(t *testing.T) {
	variable := "EVENKEEL_LEARNING_RATE_FACTOR"
	for form, want := range map[string][]string{
		"json":       {"\n  \"reference_batch\": 16,\n  \"learning_rate_scaling\": \"sqrt\",\n  \"learning_rate_factor\": 2,\n"},
		"deepspeed":  {"\n    \"reference_batch\": 16,\n    \"learning_rate_scaling\": \"sqrt\",\n    \"learning_rate_factor\": 2,\n"},
		"torchrun":   {" " + variable + "=2 ;;\n", "EVENKEEL_DEVICE " + variable + "\n"},
		"kubernetes": {"\n    " + variable + "=2\n", "\"reference_batch\": 16"},
	} {
		text := string(write(t, form, scaled()))
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s lacks %q:\n%s", form, w, text)
			}
		}
		if plain := string(write(t, form, example())); strings.Contains(plain, variable) || strings.Contains(plain, "reference_batch") {
			t.Errorf("%s names a factor that was not asked:\n%s", form, plain)
		}
	}
	if !bytes.Equal(write(t, "csv", scaled()), write(t, "csv", example())) {
		t.Error("the table changed")
	}
}

func TestShellLearningRate(t *testing.T) {
	dir := t.TempDir()
	if err := Save(dir+"/sizes.sh", "torchrun", scaled()); err != nil {
		t.Fatal(err)
	}
	got, err := sh(t, dir, `. ./sizes.sh && sh -c 'printf %s "$EVENKEEL_LEARNING_RATE_FACTOR"'`, "RANK=1")
	if err != nil || got != "2" {
		t.Errorf("%v: %q", err, got)
	}
}

func TestValidateLearningRate(t *testing.T) {
	for want, change := range map[string]func(*Sizes){
		"learning_rate_factor: is 3; by sqrt from 16 samples to 64 it lies in 2..2":       func(s *Sizes) { s.LearningRateFactor = 3 },
		"learning_rate_factor: is NaN; it must lie above 0":                               func(s *Sizes) { s.LearningRateFactor = math.NaN() },
		"learning_rate_factor: is +Inf; it must":                                          func(s *Sizes) { s.LearningRateFactor = math.Inf(1) },
		"learning_rate_factor: is 0; it must":                                             func(s *Sizes) { s.LearningRateFactor = 0 },
		"learning_rate_factor: is 1001; it must lie above 0 and be at most 1000":          func(s *Sizes) { s.LearningRateFactor = 1001 },
		"learning_rate_factor: is 4.1; by adascale from 16 samples to 64 it lies in 1..4": func(s *Sizes) { s.LearningRateScaling, s.LearningRateFactor = AdaScale, 4.1 },
		"reference_batch: is -1; it must lie in":                                          func(s *Sizes) { s.ReferenceBatch = -1 },
		"reference_batch: is 0; it must lie in":                                           func(s *Sizes) { s.ReferenceBatch = 0 },
		"learning_rate_scaling: is \"cube\"; it must be one of linear,":                   func(s *Sizes) { s.LearningRateScaling = "cube" },
	} {
		s := scaled()
		change(&s)
		if err := s.Validate(); !errors.Is(err, ErrSizes) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, f := range []float64{1, 2.5, 4} {
		s := scaled()
		s.LearningRateScaling, s.LearningRateFactor = AdaScale, f
		if err := s.Validate(); err != nil {
			t.Error(err)
		}
	}
}
