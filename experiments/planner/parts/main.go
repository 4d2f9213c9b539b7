// Command parts measures what plans lose without each part of the search:
//
//	go run ./experiments/planner/parts
//
// It builds experiments/planner/gap with a changed copy of one file for each part (go build -overlay), and compares the plans of the mixed
// jobs with those of the whole search. It is run in the folder of the repository.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	jobs := flag.Int("jobs", 40, "how many mixed jobs")
	only := flag.String("part", "", "regular expression: those parts alone whose name has it")
	flag.Parse()
	log.SetFlags(0)
	these, err := regexp.Compile(*only)
	if err != nil {
		log.Fatal(err)
	}
	temp, err := os.MkdirTemp("", "parts")
	if err == nil {
		err = errors.Join(table(temp, *jobs, these), os.RemoveAll(temp))
	}
	if err != nil {
		log.Fatal(err)
	}
}

func table(temp string, jobs int, these *regexp.Regexp) error {
	whole, took, err := plans(temp, part{}, jobs)
	if err != nil {
		return err
	}
	fmt.Printf("%d jobs, %.0f s of processors\n\n| without | lines | jobs slower | plans slower, mean | at most | search, time |\n|---|---|---|---|---|---|\n", len(whole), took)
	for _, p := range parts {
		if !these.MatchString(p.name) {
			continue
		}
		lines, err := p.lines()
		if err != nil {
			return err
		}
		without, seconds, err := plans(temp, p, jobs)
		if err != nil {
			return err
		}
		fmt.Printf("| %s | %d | %s | %.2f |\n", p.name, lines, compared(whole, without), seconds/took)
	}
	return nil
}

// compared are the columns of a table: how many plans are slower, by how much in the mean and at most.
func compared(whole, without map[string]float64) string {
	sum, most, slower, none := 0.0, 0.0, 0, 0
	for name, seconds := range whole {
		got, ok := without[name]
		if !ok {
			none++
			continue
		}
		loss := got/seconds - 1
		if sum += loss; loss > 1e-4 {
			slower++
		}
		most = max(most, loss)
	}
	text := fmt.Sprintf("%d | %.2f%% | %.1f%%", slower, 100*sum/float64(len(whole)-none), 100*most)
	if none > 0 {
		text += fmt.Sprintf("; %d without a plan", none)
	}
	return text
}

// lines of the functions of a part, with their comments, and of its folder without tests.
func (p part) lines() (n int, err error) {
	left := slices.Clone(p.functions)
	files := token.NewFileSet()
	gone, _ := filepath.Glob(filepath.Join(p.folder, "*.go")) // the patterns are right
	names, _ := filepath.Glob(filepath.Join(filepath.Dir(p.file), "*.go"))
	for _, name := range slices.Concat(gone, names) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, name, nil, parser.ParseComments)
		if err != nil {
			return 0, err
		}
		if filepath.Dir(name) == p.folder {
			n += files.File(f.Pos()).LineCount()
			continue
		}
		for _, d := range f.Decls {
			of, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if i := slices.Index(left, of.Name.Name); i >= 0 {
				left = slices.Delete(left, i, i+1)
				begin := of.Pos()
				if of.Doc != nil {
					begin = of.Doc.Pos()
				}
				n += files.Position(of.End()).Line - files.Position(begin).Line + 1
			}
		}
	}
	if len(left) > 0 {
		return 0, fmt.Errorf("%s: no function %v in %s", p.name, left, filepath.Dir(p.file))
	}
	return max(n, strings.Count(p.old, "\n")+1), nil
}

// plans are the seconds of an iteration of each job, and those of all searches, without a part.
func plans(temp string, p part, jobs int) (map[string]float64, float64, error) {
	program, overlay := filepath.Join(temp, "gap"), filepath.Join(temp, "overlay.json")
	replace := map[string]string{}
	if p.file != "" {
		text, err := os.ReadFile(p.file)
		if err != nil {
			return nil, 0, err
		}
		if bytes.Count(text, []byte(p.old)) != 1 {
			return nil, 0, fmt.Errorf("%s: %s has not one %q", p.name, p.file, p.old)
		}
		path, err := filepath.Abs(p.file)
		if err != nil {
			return nil, 0, err
		}
		replace[path] = filepath.Join(temp, "changed.go")
		if err := os.WriteFile(replace[path], bytes.Replace(text, []byte(p.old), []byte(p.without), 1), 0o600); err != nil {
			return nil, 0, err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, 0, err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return nil, 0, err
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-o", program, "./experiments/planner/gap")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, 0, fmt.Errorf("%s: %w\n%s", p.name, err, out)
	}
	search := exec.Command(program, "-set", "mixed", "-jobs", strconv.Itoa(jobs), "-bound=false")
	out, err := search.Output()
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", p.name, err)
	}
	found := map[string]float64{}
	for line := range strings.Lines(string(out)) {
		cells := strings.Split(line, " | ")
		if len(cells) < 8 {
			continue
		}
		if seconds, err := strconv.ParseFloat(cells[3], 64); err == nil {
			found[strings.TrimPrefix(cells[0], "| ")] = seconds
		}
	}
	return found, search.ProcessState.UserTime().Seconds(), nil // not the clock's: the machine may be shared
}
