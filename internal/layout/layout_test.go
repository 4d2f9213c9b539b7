package layout

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// file is a Go file of the main module.
type file struct {
	path, pkg string // without the module's path
	text      string
	ast       *ast.File
	fset      *token.FileSet
}

func (f *file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

func (f *file) line(n ast.Node) int { return f.fset.Position(n.Pos()).Line }

// load parses every Go file of the module: not of testdata, nor of modules within it.
func load(t *testing.T) []*file {
	t.Helper()
	var files []*file
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path == root {
				return nil
			}
			_, module := os.Stat(filepath.Join(path, "go.mod"))
			if module == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(fset, path, text, parser.ParseComments)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		files = append(files, &file{path: name, pkg: filepath.ToSlash(filepath.Dir(name)), text: string(text), ast: parsed, fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("%d files: not the repository", len(files))
	}
	return files
}

// imports maps the names that a file uses for packages to their paths.
func (f *file) imports() map[string]string {
	out := map[string]string{}
	for _, s := range f.ast.Imports {
		path, _ := strconv.Unquote(s.Path.Value) // the parser saw it
		parts := strings.Split(strings.TrimSuffix(path, "/v2"), "/")
		name := parts[len(parts)-1]
		if s.Name != nil {
			name = s.Name.Name
		}
		out[name] = path
	}
	return out
}

func TestImports(t *testing.T) {
	for _, f := range load(t) {
		for _, path := range f.imports() {
			to, ours := strings.CutPrefix(path, module)
			// Tests may also use what stands above them: whole runs are tests too.
			if !ours || f.test() {
				continue
			}
			if why := forbidden(f.pkg, to); why != "" {
				t.Errorf("%s: %s", f.path, why)
			}
		}
	}
}

func TestDecidingIsPure(t *testing.T) {
	for _, f := range load(t) {
		top, _, _ := strings.Cut(f.pkg, "/")
		if f.test() || !slices.Contains(deciding, top) || slices.Contains(acting, f.pkg) {
			continue
		}
		names := f.imports()
		for _, path := range names {
			if slices.Contains(impureImports, path) {
				t.Errorf("%s imports %s: %s", f.path, path, decidingWhy)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := s.X.(*ast.Ident)
			if !ok {
				return true
			}
			path := names[x.Name]
			if path == "time" && slices.Contains(impureTime, s.Sel.Name) || path == "math/rand/v2" && !slices.Contains(pureRand, s.Sel.Name) {
				t.Errorf("%s:%d: %s.%s: %s", f.path, f.line(s), x.Name, s.Sel.Name, decidingWhy)
			}
			return true
		})
	}
}

func TestPackageComments(t *testing.T) {
	commented, where := map[string]int{}, map[string]string{}
	for _, f := range load(t) {
		name := f.pkg + " " + f.ast.Name.Name
		where[name] = f.path
		if strings.HasSuffix(f.ast.Name.Name, "_test") {
			commented[name] = 1 // an external test needs none, in however many files
			continue
		}
		if f.ast.Doc != nil && strings.TrimSpace(f.ast.Doc.Text()) != "" {
			commented[name]++
		}
	}
	for name, path := range where {
		if commented[name] != 1 {
			t.Errorf("package of %s has %d package comments, want one", path, commented[name])
		}
	}
}

func TestMarks(t *testing.T) {
	marks := []string{"TO" + "DO", "FIX" + "ME", "XX" + "X"}
	for _, f := range load(t) {
		for _, m := range marks {
			if i := strings.Index(f.text, m); i >= 0 {
				t.Errorf("%s:%d: %s: do it, or open an issue", f.path, 1+strings.Count(f.text[:i], "\n"), m)
			}
		}
	}
}

// obvious are methods whose meaning another package's interface gives.
var obvious = []string{"Error", "Unwrap", "Is", "String", "Len", "Less", "Swap", "Push", "Pop"}

func TestDocComments(t *testing.T) {
	for _, f := range load(t) {
		if f.test() || f.ast.Name.Name == "main" {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !(d.Recv != nil && slices.Contains(obvious, d.Name.Name)) {
					t.Errorf("%s:%d: %s has no comment", f.path, f.line(d), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, name := range uncommented(d) {
					t.Errorf("%s:%d: %s has no comment", f.path, f.line(name), name.Name)
				}
			}
		}
	}
}

// exportedReceiver says whether users can call the function.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

// uncommented are the exported names of a declaration without a comment of their own or
// of their group's.
func uncommented(d *ast.GenDecl) []*ast.Ident {
	var out []*ast.Ident
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
				out = append(out, s.Name)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				// A constant of a type is explained by that type's comment.
				if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil && (d.Tok != token.CONST || !typed(d)) {
					out = append(out, name)
				}
			}
		}
	}
	return out
}

// typed says whether a group of constants enumerates a type.
func typed(d *ast.GenDecl) bool {
	first, ok := d.Specs[0].(*ast.ValueSpec)
	return ok && first.Type != nil
}
