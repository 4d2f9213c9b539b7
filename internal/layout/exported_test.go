package layout

import (
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"evenkeel/internal/slow"
)

// maxUnused is how many exported names may have no user outside their package: each is a
// promise that nobody asked for. Run this test with -v for the list.
const maxUnused = 40

// face collects which exported names of the module others use.
type face struct {
	used       map[string]bool
	interfaces []*types.Interface // of every package in sight: methods that they ask for are used
}

func TestExportedIsUsed(t *testing.T) {
	slow.Skip(t) // it type-checks the whole module
	if testing.Short() {
		t.Skip("it type-checks the whole module")
	}
	mode := packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedExportFile
	pkgs, err := packages.Load(&packages.Config{Mode: mode, Dir: root, Tests: true}, "./...")
	if err != nil {
		t.Fatal(err)
	}
	f := face{used: map[string]bool{}, interfaces: []*types.Interface{types.Universe.Lookup("error").Type().Underlying().(*types.Interface)}}
	seen := map[*types.Package]bool{}
	for _, p := range pkgs {
		for _, e := range p.Errors {
			t.Errorf("%s: %s", p.PkgPath, e)
		}
		f.use(p)
		f.ask(p.Types, seen)
		for _, i := range p.Types.Imports() {
			f.ask(i, seen)
		}
	}
	var unused []string
	names := 0
	for _, p := range pkgs {
		if p.Name == "main" || strings.HasPrefix(p.PkgPath, module+"cmd/") || strings.HasSuffix(p.PkgPath, "_test") || strings.HasSuffix(p.PkgPath, ".test") || p.ID != p.PkgPath {
			continue // commands, which nobody imports, tests, and the packages as tests see them
		}
		names++
		unused = append(unused, f.unused(p.Types)...)
	}
	if names < 30 {
		t.Fatalf("%d packages: not the module", names)
	}
	slices.Sort(unused)
	report := t.Logf
	if len(unused) > maxUnused {
		report = t.Errorf
	}
	report("%d exported names are used by nobody outside their package, at most %d may be: unexport them, delete them, or show in an Example what they are for:\n%s",
		len(unused), maxUnused, strings.Join(unused, "\n"))
}

// use notes what a package uses of others. A package's own examples are users too, its
// tests are not.
func (f face) use(p *packages.Package) {
	for id, o := range p.TypesInfo.Uses {
		if o.Pkg() == nil || o.Pkg().Path() == p.PkgPath || !o.Exported() {
			continue
		}
		file := filepath.Base(p.Fset.Position(id.Pos()).Filename)
		if o.Pkg().Path() == strings.TrimSuffix(p.PkgPath, "_test") && !strings.HasPrefix(file, "example") {
			continue
		}
		f.used[key(o)] = true
	}
}

// ask notes the interfaces of a package.
func (f *face) ask(p *types.Package, seen map[*types.Package]bool) {
	if seen[p] {
		return
	}
	seen[p] = true
	for _, name := range p.Scope().Names() {
		if typ, ok := p.Scope().Lookup(name).(*types.TypeName); ok {
			if i, ok := typ.Type().Underlying().(*types.Interface); ok && i.NumMethods() > 0 {
				f.interfaces = append(f.interfaces, i)
			}
		}
	}
}

// key names a package's object, or a type's method, in every view of the package.
func key(o types.Object) string {
	path := o.Pkg().Path() + "."
	if fn, ok := o.(*types.Func); ok {
		if recv := fn.Origin().Signature().Recv(); recv != nil {
			return path + receiver(recv.Type()) + "." + fn.Name()
		}
	}
	return path + o.Name()
}

func receiver(t types.Type) string {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := t.(*types.Named); ok {
		return n.Obj().Name()
	}
	return ""
}

// unused lists a package's exported names without a user. A type that a used name's
// signature or field holds is used, whether or not somebody writes its name.
func (f face) unused(p *types.Package) []string {
	var objects []types.Object
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		objects = append(objects, o)
		if typ, ok := o.(*types.TypeName); ok {
			if named, ok := typ.Type().(*types.Named); ok && o.Exported() {
				for m := range named.Methods() {
					objects = append(objects, m)
				}
			}
		}
	}
	held := map[*types.TypeName]bool{}
	for _, o := range objects {
		if o.Exported() && f.used[key(o)] {
			hold(p, o.Type(), held)
		}
	}
	var out []string
	for _, o := range objects {
		if !o.Exported() || f.used[key(o)] {
			continue
		}
		if typ, ok := o.(*types.TypeName); ok && held[typ] {
			continue
		}
		if fn, ok := o.(*types.Func); ok && fn.Signature().Recv() != nil && f.asked(fn) {
			continue
		}
		if c, ok := o.(*types.Const); ok && f.enumerates(c, held) {
			continue
		}
		out = append(out, strings.TrimPrefix(key(o), module))
	}
	return out
}

// enumerates reports whether a constant is a value of a type of its package that is used:
// an enumeration is whole or of no use.
func (f face) enumerates(c *types.Const, held map[*types.TypeName]bool) bool {
	n, ok := c.Type().(*types.Named)
	return ok && n.Obj().Pkg() == c.Pkg() && (held[n.Obj()] || f.used[key(n.Obj())])
}

// hold notes the types of package p that t is made of.
func hold(p *types.Package, t types.Type, held map[*types.TypeName]bool) {
	switch t := t.(type) {
	case *types.Named:
		for arg := range t.TypeArgs().Types() {
			hold(p, arg, held)
		}
		if t.Obj().Pkg() == p && !held[t.Obj()] {
			held[t.Obj()] = true
			hold(p, t.Underlying(), held)
		}
	case *types.Map:
		hold(p, t.Key(), held)
		hold(p, t.Elem(), held)
	case *types.Struct:
		for field := range t.Fields() {
			if field.Exported() {
				hold(p, field.Type(), held)
			}
		}
	case *types.Signature:
		for v := range t.Params().Variables() {
			hold(p, v.Type(), held)
		}
		for v := range t.Results().Variables() {
			hold(p, v.Type(), held)
		}
	case *types.Interface:
		for m := range t.Methods() {
			hold(p, m.Type(), held)
		}
	case interface{ Elem() types.Type }: // pointer, slice, array, channel
		hold(p, t.Elem(), held)
	}
}

// implicit are methods that the standard library calls without a named interface, or by
// one that no package here mentions.
var implicit = []string{"Unwrap", "Is", "MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText"}

// asked reports whether a type has the method because an interface asks for it.
func (f face) asked(fn *types.Func) bool {
	if slices.Contains(implicit, fn.Name()) {
		return true
	}
	t := fn.Signature().Recv().Type()
	if _, ok := t.(*types.Pointer); !ok {
		t = types.NewPointer(t)
	}
	for _, i := range f.interfaces {
		for m := range i.Methods() {
			if m.Name() == fn.Name() && types.Implements(t, i) {
				return true
			}
		}
	}
	return false
}
