package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

// A switched binary is a test binary that holds all mutants of a package's files at once; a
// variable of the environment names the one that acts. Building a mutant takes several times
// as long as most of our tests, so nearly all mutants are judged in such a binary. What
// cannot be switched, constants for instance, is built alone.

//go:embed switch.go.txt
var switchSource string // what switched expressions call, added to the package

// place is one token that mutants replace.
type place struct {
	file         string
	line, column int
}

func (p place) String() string { return fmt.Sprintf("%s:%d:%d", p.file, p.line, p.column) }

// mutantID names a mutant: its place and the token that it has there.
func mutantID(p place, with token.Token) string { return p.String() + ":" + with.String() }

// edit is text that replaces [from, to) of a file.
type edit struct {
	from, to int
	text     string
}

// switcher makes the switched text of one file.
type switcher struct {
	files *token.FileSet
	info  *types.Info
	skip  map[int]bool // lines that are left alone
	edits []edit
	ids   []string // of the mutants so far, those of files before included: number i+1 is ids[i]
}

// functions are those of switch.go.txt by the operator that they stand for.
var functions = map[token.Token]string{
	token.ADD: "mutationAdd", token.SUB: "mutationSub", token.MUL: "mutationMul", token.QUO: "mutationQuo", token.REM: "mutationRem",
	token.LSS: "mutationLss", token.LEQ: "mutationLeq", token.GTR: "mutationGtr", token.GEQ: "mutationGeq",
}

// others are the tokens that a mutant may have in place of an operator, in the order of the
// functions' parameters.
var others = map[token.Token][]token.Token{
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.MUL},
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR}, token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL}, token.INC: {token.DEC}, token.DEC: {token.INC},
}

// arguments registers the mutants of a token and returns their numbers, as Go text.
func (s *switcher) arguments(pos token.Pos, tok token.Token) string {
	p := s.files.Position(pos)
	var b strings.Builder
	for _, with := range others[tok] {
		s.ids = append(s.ids, mutantID(place{filepath.Base(p.Filename), p.Line, p.Column}, with))
		fmt.Fprintf(&b, "%d, ", len(s.ids))
	}
	return b.String()
}

func (s *switcher) offset(p token.Pos) int { return s.files.Position(p).Offset }

// around puts text before a node, in place of its operator and after it.
func (s *switcher) around(n ast.Node, before string, op token.Pos, width int, instead, after string) {
	s.edits = append(s.edits, edit{s.offset(n.Pos()), s.offset(n.Pos()), before}, edit{s.offset(op), s.offset(op) + width, instead})
	s.edits = append(s.edits, edit{s.offset(n.End()), s.offset(n.End()), after})
}

// node switches one node, if it can be. Constants cannot.
func (s *switcher) node(n ast.Node) {
	if n == nil || s.skip[s.files.Position(n.Pos()).Line] {
		return
	}
	if e, ok := n.(ast.Expr); ok && s.info.Types[e].Value != nil {
		return
	}
	switch n := n.(type) {
	case *ast.BinaryExpr:
		name := functions[n.Op]
		basic, _ := s.info.TypeOf(n).Underlying().(*types.Basic)
		switch {
		case n.Op == token.EQL || n.Op == token.NEQ: // != is exclusive or
			s.around(n, "((", n.OpPos, len(n.Op.String()), n.Op.String(), ") != mutationIs("+s.arguments(n.OpPos, n.Op)+"))")
		case name == "" || basic == nil || basic.Info()&types.IsString != 0:
		default:
			s.around(n, name+"("+s.arguments(n.OpPos, n.Op), n.OpPos, len(n.Op.String()), ",", ")")
		}
	case *ast.UnaryExpr:
		if n.Op == token.SUB {
			s.around(n, "mutationNeg(", n.OpPos, 1, s.arguments(n.OpPos, n.Op), ")")
		}
	case *ast.IncDecStmt:
		op, with := n.Tok.String(), others[n.Tok][0].String()
		before := "func() { if mutationIs(" + s.arguments(n.TokPos, n.Tok) + ") {"
		x := types.ExprString(n.X)
		s.around(n, before+x+with+"} else {", n.TokPos, len(op), op, "}}()")
	}
}

// apply returns text with the edits. Of those at one offset, what closes a node comes before
// what opens one, and nodes within close first.
func (s *switcher) apply(text []byte) []byte {
	slices.SortStableFunc(s.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var b bytes.Buffer
	at := 0
	for _, e := range s.edits {
		b.Write(text[at:e.from])
		b.WriteString(e.text)
		at = e.to
	}
	b.Write(text[at:])
	return b.Bytes()
}

// switchFile returns the switched text of a parsed file, and ids with the mutants in it.
func switchFile(files *token.FileSet, info *types.Info, file *ast.File, text []byte, skip map[int]bool, ids []string) ([]byte, []string) {
	s := &switcher{files: files, info: info, skip: skip, ids: ids}
	var closing []edit
	var stack []ast.Node
	var ends [][]edit
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			last := len(stack) - 1
			closing = append(closing, ends[last]...)
			stack, ends = stack[:last], ends[:last]
			return true
		}
		before := len(s.edits)
		s.node(n)
		var end []edit
		if len(s.edits) > before { // the closing text, after that of the nodes within
			end = []edit{s.edits[len(s.edits)-1]}
			s.edits = s.edits[:len(s.edits)-1]
		}
		stack, ends = append(stack, n), append(ends, end)
		return true
	})
	s.edits = append(closing, s.edits...)
	return s.apply(text), s.ids
}

// listOf is where the names of a switched binary's mutants are.
func listOf(binary string) string { return binary + ".list" }

// number is that of a mutant in a switched binary, 0 if it is not in it.
func number(binary, id string) int {
	list, err := os.ReadFile(listOf(binary))
	if err != nil {
		return 0
	}
	return slices.Index(strings.Split(string(list), "\n"), id) + 1
}

// buildSwitched builds the switched binary of a target within the tree, and writes the list of
// its mutants beside it. Lines that do not compile when they are switched are left alone.
func buildSwitched(ctx context.Context, goTool, tree, dir string, t target) (binary string, err error) {
	mode := packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedExportFile | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo
	pkgs, err := packages.Load(&packages.Config{Context: ctx, Mode: mode, Dir: tree}, "./"+t.Package)
	if err != nil {
		return "", err
	}
	if len(pkgs) != 1 || len(pkgs[0].Errors) > 0 {
		return "", fmt.Errorf("%s: %d packages, errors %v", t.Package, len(pkgs), pkgs[0].Errors)
	}
	skip := map[string]map[int]bool{}
	for _, f := range t.Files {
		skip[f] = map[int]bool{}
	}
	binary = filepath.Join(dir, "switched.test")
	for range 10 {
		overlay, ids, err := writeSwitched(pkgs[0], dir, skip)
		if err != nil {
			return "", err
		}
		cmd := build(ctx, goTool, "./"+t.Package, binary, "-gcflags=-e", "-overlay="+overlay)
		cmd.Dir = tree
		out, err := cmd.CombinedOutput()
		if err == nil {
			return binary, os.WriteFile(listOf(binary), []byte(strings.Join(ids, "\n")), 0o644)
		}
		if !leaveAlone(out, skip) {
			return "", fmt.Errorf("%s with switches: %w\n%s", t.Package, err, out)
		}
	}
	return "", fmt.Errorf("%s with switches: lines that do not compile after ten attempts", t.Package)
}

// writeSwitched writes the switched texts of a package's files, those named by skip, into dir, and
// an overlay for the go command that puts them in their place. It returns the overlay's path and
// the mutants by number.
func writeSwitched(p *packages.Package, dir string, skip map[string]map[int]bool) (overlay string, ids []string, err error) {
	replace := map[string]string{}
	put := func(path string, text []byte) error {
		replace[path] = filepath.Join(dir, filepath.Base(path))
		return os.WriteFile(replace[path], text, 0o644)
	}
	for _, file := range p.Syntax {
		path := p.Fset.Position(file.Package).Filename
		lines, judged := skip[filepath.Base(path)]
		if !judged {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return "", nil, err
		}
		text, ids = switchFile(p.Fset, p.TypesInfo, file, text, lines, ids)
		if err := put(path, text); err != nil {
			return "", nil, err
		}
	}
	if err := put(filepath.Join(filepath.Dir(p.GoFiles[0]), "mutation_switch.go"), []byte("package "+p.Name+"\n"+switchSource)); err != nil {
		return "", nil, err
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, ids, os.WriteFile(overlay, list, 0o644)
}

var compileError = regexp.MustCompile(`([\w.]+\.go):(\d+):\d+: `)

// leaveAlone adds the lines that a compiler complains of, and says whether there are any.
func leaveAlone(out []byte, skip map[string]map[int]bool) bool {
	before := total(skip)
	for _, m := range compileError.FindAllSubmatch(out, -1) {
		if lines := skip[string(m[1])]; lines != nil {
			line, _ := strconv.Atoi(string(m[2]))
			lines[line] = true
		}
	}
	return total(skip) > before
}

func total(skip map[string]map[int]bool) int {
	n := 0
	for lines := range maps.Values(skip) {
		n += len(lines)
	}
	return n
}
