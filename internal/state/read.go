package state

import (
	"encoding/binary"
	"math"
	"reflect"
)

type reader struct {
	b      []byte
	failed bool
}

func (r *reader) fail() { r.b, r.failed = nil, true }

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail()
		return make([]byte, 8)
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) number() int64 {
	n, used := binary.Varint(r.b)
	if used <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[used:]
	return n
}

func (r *reader) unsigned() uint64 {
	n, used := binary.Uvarint(r.b)
	if used <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[used:]
	return n
}

// length reads a number of elements. Each takes at least so many bytes, so damaged bytes cannot claim more elements than
// there is room for.
func (r *reader) length(least int) int {
	n := r.unsigned()
	if n > uint64(len(r.b)/max(least, 1)) { //nolint:gosec // not negative
		r.fail()
		return 0
	}
	return int(n) //nolint:gosec // within len
}

func (r *reader) present() bool {
	b := r.take(1)[0]
	if b > 1 {
		r.fail()
	}
	return b == 1
}

func (r *reader) value(v reflect.Value, depth int) {
	if depth == 0 {
		r.fail()
	}
	if r.failed {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.present())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n := r.number()
		if v.SetInt(n); v.Int() != n {
			r.fail()
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n := r.unsigned()
		if v.SetUint(n); v.Uint() != n {
			r.fail()
		}
	case reflect.Float32, reflect.Float64:
		v.SetFloat(math.Float64frombits(binary.LittleEndian.Uint64(r.take(8))))
	case reflect.String:
		v.SetString(string(r.take(r.length(1))))
	case reflect.Array:
		for i := range v.Len() {
			r.value(v.Index(i), depth-1)
		}
	case reflect.Slice:
		r.slice(v, depth)
	case reflect.Pointer:
		if !r.present() {
			v.SetZero()
			return
		}
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		r.value(v.Elem(), depth-1)
	case reflect.Map:
		r.entries(v, depth)
	case reflect.Struct:
		fields(v, func(f reflect.Value) { r.value(f, depth-1) })
	}
}

// slice reads into the existing structs if their number is right, since they may have fields that are not kept. Otherwise it
// makes a new slice: others may share the old one.
func (r *reader) slice(v reflect.Value, depth int) {
	if !r.present() {
		v.SetZero()
		return
	}
	n := r.length(least(v.Type().Elem()))
	if v.Len() != n || v.IsNil() || v.Type().Elem().Kind() != reflect.Struct {
		v.Set(reflect.MakeSlice(v.Type(), n, n))
	}
	for i := range n {
		r.value(v.Index(i), depth-1)
	}
}

func (r *reader) entries(v reflect.Value, depth int) {
	if !r.present() {
		v.SetZero()
		return
	}
	n := r.length(2)
	v.Set(reflect.MakeMapWithSize(v.Type(), n))
	for range n {
		k := reflect.New(v.Type().Key()).Elem()
		k.SetInt(r.number())
		x := reflect.New(v.Type().Elem()).Elem()
		r.value(x, depth-1)
		v.SetMapIndex(k, x)
	}
}

// least is the smallest number of bytes that a value of the type takes.
func least(t reflect.Type) int {
	switch t.Kind() {
	case reflect.Float32, reflect.Float64:
		return 8
	case reflect.Array:
		return t.Len() * least(t.Elem())
	case reflect.Struct:
		n := 0
		for i := range t.NumField() {
			if t.Field(i).Tag.Get("state") != "-" {
				n += least(t.Field(i).Type)
			}
		}
		return n
	}
	return 1
}
