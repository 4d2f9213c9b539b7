// Package state keeps values as bytes, and reads them back into values of the same type: what a program must not forget, unexported fields included.
//
//	b, err := state.Encode(&v)
//	err = state.Decode(b, &v) // of a value that was made as the first one was
//
// Every field is kept but those with the tag `state:"-"`, which stay as they are: what is made anew, or belongs to another value. A field that cannot be kept, and
// has no such tag, is an error of Encode. The bytes begin with a hash of the types' fields, so those of another version of the program are not misread, and end with a checksum.
//
//	8            FNV-1a-64 of the kinds and names of all fields
//	             the fields in their order
//	8            xxh3-64 of all bytes before, little-endian
//
//	bool         1 byte, 0 or 1
//	int          signed varint (zigzag)
//	uint         unsigned varint
//	float        8 bytes, IEEE 754 double, little-endian
//	string       length as unsigned varint, bytes
//	array        its elements
//	slice        1 byte, 0: nil, 1: length as unsigned varint, elements
//	pointer      1 byte, 0: nil, 1: what it points to
//	map          1 byte, 0: nil, 1: length as unsigned varint, then key (int) and value by rising keys
//	struct       its fields
package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"reflect"
	"slices"

	"github.com/zeebo/xxh3"
)

// Errors of Decode.
var (
	errOther   = errors.New("state: of another version of the program")
	ErrDamaged = errors.New("state: damaged")
)

// header is the hash of the types, footer the checksum.
const header, footer = 8, 8

// maxDepth bounds how deep a value may be nested.
const maxDepth = 64

// Encode returns the bytes of the value that v points to.
func Encode(v any) ([]byte, error) {
	x := reflect.ValueOf(v).Elem()
	shape, err := shapeOf(x.Type())
	if err != nil {
		return nil, err
	}
	w := writer{binary.LittleEndian.AppendUint64(nil, shape)}
	w.value(x)
	return binary.LittleEndian.AppendUint64(w.b, xxh3.Hash(w.b)), nil
}

// Decode reads the bytes of Encode into the value that v points to. After an error that value is of no use.
func Decode(b []byte, v any) error {
	x := reflect.ValueOf(v).Elem()
	shape, err := shapeOf(x.Type())
	if err != nil {
		return err
	}
	if len(b) < header+footer {
		return ErrDamaged
	}
	body := b[:len(b)-footer]
	switch {
	case xxh3.Hash(body) != binary.LittleEndian.Uint64(b[len(body):]):
		return ErrDamaged
	case binary.LittleEndian.Uint64(body) != shape:
		return errOther
	}
	r := reader{b: body[header:]}
	r.value(x, maxDepth)
	if r.failed || len(r.b) > 0 {
		return ErrDamaged
	}
	return nil
}

// shapeOf is a hash of the names and kinds of a type's fields, and of the fields of these.
func shapeOf(t reflect.Type) (uint64, error) {
	h := fnv.New64a()
	var within []reflect.Type
	var add func(t reflect.Type, path string) error
	add = func(t reflect.Type, path string) error {
		if slices.Contains(within, t) {
			return fmt.Errorf("state: %s: %s holds itself", path, t)
		}
		within = append(within, t)
		defer func() { within = within[:len(within)-1] }()
		_, _ = fmt.Fprintf(h, "%s ", t.Kind()) // never fails
		switch t.Kind() {
		case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
			reflect.Float32, reflect.Float64, reflect.String:
			return nil
		case reflect.Array:
			_, _ = fmt.Fprintf(h, "%d ", t.Len())
			return add(t.Elem(), path+"[]")
		case reflect.Slice, reflect.Pointer:
			return add(t.Elem(), path+"[]")
		case reflect.Map:
			if t.Key().Kind() != reflect.Int {
				return fmt.Errorf("state: %s: keys of %s", path, t)
			}
			return add(t.Elem(), path+"[]")
		case reflect.Struct:
			for f := range t.Fields() {
				if f.Tag.Get("state") == "-" {
					continue
				}
				_, _ = fmt.Fprintf(h, "%s ", f.Name)
				if err := add(f.Type, path+"."+f.Name); err != nil {
					return err
				}
			}
			_, _ = h.Write([]byte("end "))
			return nil
		}
		return fmt.Errorf("state: %s: a %s cannot be kept; give the field the tag state:\"-\" and make it anew", path, t)
	}
	if err := add(t, t.String()); err != nil {
		return 0, err
	}
	return h.Sum64(), nil
}

// fields calls each with the kept fields of a struct, unexported ones too.
func fields(v reflect.Value, each func(reflect.Value)) {
	t := v.Type()
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("state") == "-" {
			continue
		}
		f := v.Field(i)
		each(reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()) // as f, but may be read and set
	}
}

type writer struct{ b []byte }

func (w *writer) number(n int64)   { w.b = binary.AppendVarint(w.b, n) }
func (w *writer) length(n int)     { w.b = binary.AppendUvarint(w.b, uint64(n)) } //nolint:gosec // not negative
func (w *writer) float(f float64)  { w.b = binary.LittleEndian.AppendUint64(w.b, math.Float64bits(f)) }
func (w *writer) present(yes bool) { w.b = append(w.b, map[bool]byte{true: 1}[yes]) }

func (w *writer) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		w.present(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.number(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		w.b = binary.AppendUvarint(w.b, v.Uint())
	case reflect.Float32, reflect.Float64:
		w.float(v.Float())
	case reflect.String:
		w.length(v.Len())
		w.b = append(w.b, v.String()...)
	case reflect.Array:
		for i := range v.Len() {
			w.value(v.Index(i))
		}
	case reflect.Slice:
		if w.present(!v.IsNil()); !v.IsNil() {
			w.length(v.Len())
			for i := range v.Len() {
				w.value(v.Index(i))
			}
		}
	case reflect.Pointer:
		if w.present(!v.IsNil()); !v.IsNil() {
			w.value(v.Elem())
		}
	case reflect.Map:
		if w.present(!v.IsNil()); v.IsNil() {
			return
		}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return int(a.Int() - b.Int()) })
		w.length(len(keys))
		for _, k := range keys {
			w.number(k.Int())
			x := reflect.New(v.Type().Elem()).Elem()
			x.Set(v.MapIndex(k))
			w.value(x)
		}
	case reflect.Struct:
		fields(v, w.value)
	}
}
