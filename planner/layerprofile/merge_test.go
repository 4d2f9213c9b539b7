package layerprofile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const header = "layer,name,parameters,output_bytes,device,tensor,micro_batch,forward_seconds,backward_seconds,update_seconds,activation_bytes,fixed_bytes\n"

func save(t *testing.T, files map[string]string) (path func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func(name string) string { return filepath.Join(dir, name) }
}

// Random profiles are cut by device, tensor degree and micro-batch into files, some of which leave names out, and come back whole, whatever
// the order of the files.
func TestMerge(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 62))
		var lines []string
		layers := 1 + rng.IntN(5)
		for i := range layers {
			sizes := fmt.Sprintf("%d,layer%d,%d,%d", i, i, rng.IntN(1000), rng.IntN(1000))
			for _, device := range []string{"a", "b", "c"} {
				for tensor := 1; tensor <= 2; tensor++ {
					for _, b := range []int{1, 2, 4} {
						// A time that falls with the micro-batch is corrected where a profile is read, not where it is merged.
						lines = append(lines, fmt.Sprintf("%s,%s,%d,%d,%v,%v,0.5,%d,%d", sizes, device, tensor, b, rng.Float64(), rng.Float64(), rng.IntN(100), rng.IntN(2)))
					}
				}
			}
		}
		files := 2 + rng.IntN(3)
		parts := make([]string, files)
		for k := range parts {
			parts[k] = header
		}
		for _, l := range lines {
			f := strings.Split(l, ",")
			k := int(f[4][0]+f[5][0]+f[6][0]) % files // all layers of a measurement lie in one file
			if seed%2 == 1 && k == 1 {
				f[1] = ""
			}
			parts[k] += strings.Join(f, ",") + "\n"
		}
		named, names := map[string]string{"whole.csv": header + strings.Join(lines, "\n") + "\n"}, []string{}
		for k, text := range parts {
			if text == header {
				continue
			}
			name := fmt.Sprintf("part%d.csv", k)
			named[name] = text
			names = append(names, name)
		}
		path := save(t, named)
		rng.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
		for i := range names {
			names[i] = path(names[i])
		}
		if len(names) < 2 {
			continue
		}
		merged, err := Merge(names...)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var text bytes.Buffer
		if err := merged.WriteCSV(&text); err != nil {
			t.Fatal(err)
		}
		again, err := Read(&text, "whole.csv")
		if err != nil {
			t.Fatal(err)
		}
		whole, err := Load(path("whole.csv"))
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(again.Layers) != fmt.Sprint(whole.Layers) || fmt.Sprint(again.Warnings) != fmt.Sprint(whole.Warnings) || fmt.Sprint(merged.Warnings) != fmt.Sprint(whole.Warnings) {
			t.Fatalf("seed %d: merged\n%v %v\nwant\n%v %v", seed, again.Layers, merged.Warnings, whole.Layers, whole.Warnings)
		}
		if len(whole.Warnings) > 0 && fmt.Sprint(merged.Layers) == fmt.Sprint(whole.Layers) {
			t.Fatalf("seed %d: times were corrected in merging", seed)
		}
	}
}

// Equal layers that one file gives as a range and another one by one are written as a range, named or not.
func TestMergeRanges(t *testing.T) {
	const ranges = header + "0,e,5,64,a,1,1,1,2,0,100,\n1-3,block,7,64,a,1,1,1,2,0,100,\n"
	for _, name := range []string{"block", ""} {
		path := save(t, map[string]string{"a.csv": ranges, "b.csv": header + strings.ReplaceAll("0,e,5,64,b,1,1,1,2,0,100,\n1,NAME,7,64,b,1,1,1,2,0,100,\n2,NAME,7,64,b,1,1,1,2,0,100,\n3,NAME,7,64,b,1,1,1,2,0,100,\n", "NAME", name)})
		for _, files := range [][]string{{"a.csv", "b.csv"}, {"b.csv", "a.csv"}} {
			p, err := Merge(path(files[0]), path(files[1]))
			if err != nil {
				t.Error(err)
				continue
			}
			var text bytes.Buffer
			if err := p.WriteCSV(&text); err != nil || strings.Count(text.String(), "\n1-3,block,7,64,") != 2 {
				t.Errorf("%v: %v\n%s", files, err, text.String())
			}
		}
	}
}

func TestBadMerges(t *testing.T) {
	path := save(t, map[string]string{
		"a.csv":       header + "0,e,5,64,a,1,1,1,2,0.1,100,\n1-2,b,7,64,a,1,1,1,2,0.1,100,\n",
		"same.csv":    header + "# measured again\n0,e,5,64,b,1,1,1,2,0.1,100,\n1-2,b,7,64,b,1,1,1,2,0.1,100,\n1,b,7,64,a,1,1,1,2,0.1,100,\n",
		"other.csv":   header + "0,e,5,64,b,1,1,1,2,0.1,100,\n0,e,5,64,a,1,1,3,2,0.1,100,\n1-2,b,7,64,b,1,1,1,2,0.1,100,\n",
		"sizes.csv":   header + "0,e,5,64,b,1,1,1,2,0.1,100,\n1-2,b,8,64,b,1,1,1,2,0.1,100,\n",
		"output.csv":  header + "0,e,5,32,b,1,1,1,2,0.1,100,\n1-2,b,7,64,b,1,1,1,2,0.1,100,\n",
		"tied.csv":    strings.Replace(header, "fixed_bytes", "tied_parameters", 1) + "0,e,5,64,b,1,1,1,2,0.1,100,\n1,b,7,64,b,1,1,1,2,0.1,100,\n2,b,7,64,b,1,1,1,2,0.1,100,5\n",
		"names.csv":   header + "0,x,5,64,b,1,1,1,2,0.1,100,\n1-2,b,7,64,b,1,1,1,2,0.1,100,\n",
		"shorter.csv": header + "0,e,5,64,b,1,1,1,2,0.1,100,\n1,b,7,64,b,1,1,1,2,0.1,100,\n",
		"twice.csv":   header + "0,e,5,64,b,1,1,1,2,0.1,100,\n1-2,b,7,64,b,1,1,1,2,0.1,100,\n2,b,7,64,b,1,1,1,2,0.1,100,\n",
		"bad.csv":     header + "0,e,5,64,b,1,0,1,2,0.1,100,\n",
	})
	for name, want := range map[string][]string{
		"same.csv":    {"same.csv:5: ", "layer 1 (b) on a, tensor 1: micro-batch 1 is given twice: it is in ", "a.csv:3 too, with the same numbers"},
		"other.csv":   {"other.csv:3: ", "layer 0 (e) on a, tensor 1", "a.csv:2 too, which says 1 s forward, 2 s backward and 100 bytes of activations instead of 3 s, 2 s and 100"},
		"sizes.csv":   {"sizes.csv:3: ", "layer 1 has 8 parameters", "a.csv:3 says 7 parameters (0 tied), 64 bytes"},
		"output.csv":  {"output.csv:2: ", "32 bytes of output", "a.csv:2 says 5 parameters (0 tied), 64 bytes"},
		"tied.csv":    {"tied.csv:4: ", "7 parameters (5 tied)", "a.csv:3 says 7 parameters (0 tied), 64 bytes"},
		"names.csv":   {"names.csv:2: ", `the name "x"`, `a.csv:2 says 5 parameters (0 tied), 64 bytes of output and "e"`},
		"shorter.csv": {"shorter.csv: ", "it has 2 layers, ", "a.csv has 3"},
		"twice.csv":   {"twice.csv:4: ", "layer 2 (b) on b", "twice.csv:3 too"},
		"bad.csv":     {"bad.csv:2: ", "micro_batch"},
		"a.csv":       {"a.csv: ", "given twice"},
		"none.csv":    {"none.csv", "no such file"},
	} {
		_, err := Merge(path("a.csv"), path(name))
		for _, w := range want {
			if err == nil || !errors.Is(err, ErrProfile) && name != "none.csv" || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v; want %q", name, err, w)
			}
		}
	}
	// The first file that names a layer names it for all after it.
	rest := ",5,64,%s,1,1,1,2,0.1,100,\n"
	path = save(t, map[string]string{"none.csv": header + "0," + fmt.Sprintf(rest, "a"), "x.csv": header + "0,x" + fmt.Sprintf(rest, "b"), "y.csv": header + "0,y" + fmt.Sprintf(rest, "c")})
	if _, err := Merge(path("none.csv"), path("x.csv"), path("y.csv")); !errors.Is(err, ErrProfile) || !strings.Contains(err.Error(), "y.csv:2: ") || !strings.Contains(err.Error(), `x.csv:2 says 5 parameters (0 tied), 64 bytes of output and "x"`) {
		t.Error(err)
	}
	if _, err := Merge(path("x.csv")); !errors.Is(err, ErrProfile) {
		t.Error(err)
	}
}
