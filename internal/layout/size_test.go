package layout

import (
	"go/ast"
	"go/token"
	"testing"
)

const (
	maxFiles      = 20 // of a package, tests left out
	maxComplexity = 20
	maxComplex    = 5 // functions above maxComplexity, tests left out
)

func TestShelves(t *testing.T) {
	files := map[string]int{}
	for _, f := range load(t) {
		if !f.test() {
			files[f.pkg]++
		}
	}
	for pkg, n := range files {
		if n > maxFiles {
			t.Errorf("%s has %d files, at most %d: split it along a seam that the compiler can hold", pkg, n, maxFiles)
		}
	}
}

func TestComplexity(t *testing.T) {
	var above []string
	for _, f := range load(t) {
		if f.test() {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && complexity(fn) > maxComplexity {
				above = append(above, f.fset.Position(fn.Pos()).String()+" "+fn.Name.Name)
			}
		}
	}
	if len(above) > maxComplex {
		t.Errorf("%d functions have a cyclomatic complexity above %d, at most %d may:", len(above), maxComplexity, maxComplex)
		for _, fn := range above {
			t.Error(fn)
		}
	}
}

// complexity is McCabe's: one more than the branches of a function.
func complexity(fn *ast.FuncDecl) int {
	n := 1
	ast.Inspect(fn, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}
