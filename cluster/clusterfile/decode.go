package clusterfile

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"evenkeel/internal/badinput"
	"evenkeel/internal/names"
)

// decoder fills a File from YAML. goccy/go-yaml parses; its own decoder stops at the
// first fault and does not say in which field it lies, so the tree is walked here and
// every fault is noted with its path and line. Unknown and repeated keys are faults.
type decoder struct {
	faults  badinput.Faults
	lines   map[string]int // of the fields that are written, by path
	anchors map[string]ast.Node
}

// scalar is a type that is written as one value and reads itself from its text.
type scalar interface{ parse(text string) error }

// composite is a type that is written in several forms.
type composite interface {
	decode(d *decoder, path string, node ast.Node)
}

func (d *decoder) fault(path, format string, args ...any) { d.faults.Add(path, format, args...) }

// read decodes source into f, both empty at first.
func (d *decoder) read(source []byte, f *File) {
	d.lines, d.anchors = map[string]int{"": 0}, map[string]ast.Node{}
	if n := tooDeep(source); n > 0 {
		d.lines[""] = n
		d.fault("", "nested more than %d deep", maxDepth)
		return
	}
	tree, err := parser.ParseBytes(source, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		text := err.Error()
		if e := yaml.Error(nil); errors.As(err, &e) {
			text = e.GetMessage()
			if t := e.GetToken(); t != nil && t.Position != nil {
				d.lines[""] = t.Position.Line
			}
		}
		switch {
		case strings.Contains(text, "character '\t'"):
			text = "a tab indents this line; YAML takes spaces"
		case strings.Contains(text, "mapping value is not allowed"):
			text += "; is it, or the next line, indented too far?"
		}
		d.fault("", "not YAML: %s", text)
		return
	}
	var bodies []ast.Node
	for _, doc := range tree.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.CommentType {
			bodies = append(bodies, doc.Body)
		}
	}
	switch len(bodies) {
	case 0:
		d.fault("", "empty; a cluster file needs at least workload, global_batch and nodes")
	case 1:
		d.value("", bodies[0], reflect.ValueOf(f).Elem())
	default:
		d.fault("", "%d YAML documents; a cluster file is one", len(bodies))
	}
}

const maxDepth = 32

// tooDeep finds the line where brackets, or list marks on one line, nest deeper than any
// cluster file: the parser takes quadratic time and stack for them. 0: none.
func tooDeep(source []byte) int {
	depth := 0
	for i, line := range strings.Split(string(source), "\n") {
		marks := 0
		for word := range strings.FieldsSeq(line) {
			if marks++; word != "-" && word != "?" {
				marks = 0
			}
			if marks > maxDepth {
				return i + 1
			}
		}
		for _, b := range line {
			switch b {
			case '[', '{':
				depth++
			case ']', '}':
				depth = max(depth-1, 0)
			}
			if depth > maxDepth {
				return i + 1
			}
		}
	}
	return 0
}

// value decodes node, the field at path, into v.
func (d *decoder) value(path string, node ast.Node, v reflect.Value) {
	if node = d.resolve(node); node == nil {
		d.fault(path, "refers to an anchor that is not defined before it")
		return
	}
	into := v.Addr().Interface()
	s, isScalar := into.(scalar)
	c, isComposite := into.(composite)
	if node.Type() == ast.NullType {
		// A section may be left empty, a value may not: it was probably forgotten.
		if k := v.Kind(); isScalar || k != reflect.Struct && k != reflect.Slice {
			d.fault(path, "has no value; give one or leave it out")
		} else {
			delete(d.lines, path)
		}
		return
	}
	switch {
	case isComposite:
		c.decode(d, path, node)
	case isScalar:
		d.scalar(path, node, s)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(path, node, v.Elem())
	case v.Kind() == reflect.Struct:
		d.fields(path, node, v)
	case v.Kind() == reflect.Slice:
		d.list(path, node, v)
	default:
		d.basic(path, node, v)
	}
}

// resolve looks through tags, anchors and aliases; nil if an alias leads nowhere.
func (d *decoder) resolve(node ast.Node) ast.Node {
	for range maxDepth {
		switch n := node.(type) {
		case *ast.TagNode:
			node = n.Value
		case *ast.AnchorNode:
			d.anchors[n.Name.String()] = n.Value
			node = n.Value
		case *ast.AliasNode:
			node = d.anchors[n.Value.String()]
		default:
			return node
		}
	}
	return nil
}

func (d *decoder) scalar(path string, node ast.Node, s scalar) {
	t, ok := text(node)
	if !ok {
		d.fault(path, "must be a single value")
		return
	}
	if err := s.parse(t); err != nil {
		d.fault(path, "%s", err)
	}
}

// list decodes a sequence.
func (d *decoder) list(path string, node ast.Node, v reflect.Value) {
	n, ok := node.(*ast.SequenceNode)
	if !ok {
		d.fault(path, "must be a list; begin each entry with a dash")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Values), len(n.Values)))
	for i, entry := range n.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = entry.GetToken().Position.Line
		d.value(at, entry, v.Index(i))
	}
}

// fields decodes a mapping into the struct v by the yaml tags of its fields.
func (d *decoder) fields(path string, node ast.Node, v reflect.Value) {
	known, names := map[string][]int{}, []string{}
	for _, f := range reflect.VisibleFields(v.Type()) {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" && name != "-" {
			known[name] = f.Index
			names = append(names, name)
		}
	}
	entries, ok := entries(node)
	if !ok {
		d.fault(path, "must be a mapping with the keys %s", strings.Join(names, ", "))
		return
	}
	prefix := ""
	if path != "" {
		prefix = path + "."
	}
	for _, e := range entries {
		line, key := e.Key.GetToken().Position.Line, keyText(e.Key)
		at := prefix + key
		first, again := d.lines[at]
		index, ok := known[key]
		switch {
		case !ok:
			d.lines[at] = line
			d.fault(at, "unknown key; %s", suggest(key, names))
		case again:
			d.faults = append(d.faults, badinput.Fault{Path: at, Text: fmt.Sprintf("given twice, first in line %d", first), Line: line})
		default:
			d.lines[at] = line
			d.value(at, e.Value, v.FieldByIndex(index))
		}
	}
}

// basic decodes a string or a number.
func (d *decoder) basic(path string, node ast.Node, v reflect.Value) {
	t, ok := text(node)
	if !ok {
		d.fault(path, "must be a single value")
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(t)
		return
	case reflect.Int:
		if n, ok := node.(*ast.IntegerNode); ok {
			if i, err := strconv.ParseInt(fmt.Sprint(n.Value), 10, strconv.IntSize); err == nil {
				v.SetInt(i)
				return
			}
		}
		d.fault(path, "is %s; it must be a whole number", shown(t, node))
	case reflect.Float64:
		f := math.NaN()
		switch n := node.(type) {
		case *ast.IntegerNode:
			f, _ = strconv.ParseFloat(fmt.Sprint(n.Value), 64)
		case *ast.FloatNode:
			f = n.Value
		}
		if math.IsNaN(f) || math.IsInf(f, 0) {
			d.fault(path, "is %s; it must be a finite number", shown(t, node))
			return
		}
		v.SetFloat(f)
	case reflect.Bool:
		b, ok := node.(*ast.BoolNode)
		if !ok {
			d.fault(path, "is %s; it must be true or false", shown(t, node))
			return
		}
		v.SetBool(b.Value)
	}
}

// entries are the keys and values of a mapping.
func entries(node ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// text is the text of a single value; false for lists and mappings.
func text(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// shown is a value as an error names it: a text in quotes, a number as written.
func shown(t string, node ast.Node) string {
	if _, ok := node.(*ast.StringNode); ok || len(t) > maxShown {
		return strconv.Quote(clip(t))
	}
	return t
}

// keyText is a key as a path names it; one that is no plain word is quoted, so that it
// cannot be mistaken for a path.
func keyText(node ast.MapKeyNode) string {
	t, ok := text(node)
	if !ok {
		t = node.String()
	}
	plain := func(r rune) bool {
		return r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	}
	if t == "" || len(t) > maxShown || strings.ContainsFunc(t, func(r rune) bool { return !plain(r) }) {
		return strconv.Quote(clip(t))
	}
	return t
}

const maxShown = 40

func clip(s string) string {
	if len(s) > maxShown {
		return strings.ToValidUTF8(s[:maxShown], "") + "..."
	}
	return s
}

// suggest names the known key within two edits of key, or all of them.
func suggest(key string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if n := names.Distance(key, k); n < least {
			best, least = k, n
		}
	}
	if best != "" {
		return "did you mean " + best + "?"
	}
	return "known here: " + strings.Join(known, ", ")
}
