package state

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"
)

type inner struct {
	A, b  float64
	Given *int `state:"-"`
	list  []bool
}

type outer struct {
	On     bool
	N      int
	small  int8
	U      uint16
	F      float32
	name   string
	Arr    [3]inner
	Slice  []inner
	Ptr    *inner
	none   *inner
	M      map[int]inner
	Nested [][]int
	Call   func() `state:"-"`
}

func drawInner(t *rapid.T) inner {
	return inner{A: rapid.Float64().Draw(t, "a"), b: rapid.Float64().Draw(t, "b"), list: rapid.SliceOf(rapid.Bool()).Draw(t, "list")}
}

// What is kept comes back, unexported fields, absent values and odd numbers too; what is not kept stays.
func TestThereAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := outer{
			On: rapid.Bool().Draw(t, "on"), N: rapid.Int().Draw(t, "n"), small: rapid.Int8().Draw(t, "small"), U: rapid.Uint16().Draw(t, "u"),
			F: rapid.Float32().Draw(t, "f"), name: rapid.String().Draw(t, "name"), Arr: [3]inner{drawInner(t), {}, drawInner(t)},
			Slice: []inner{drawInner(t), drawInner(t)}, Nested: rapid.SliceOf(rapid.SliceOf(rapid.Int())).Draw(t, "nested"),
		}
		if rapid.Bool().Draw(t, "ptr") {
			x := drawInner(t)
			in.Ptr = &x
		}
		for k := range rapid.IntRange(0, 4).Draw(t, "map") {
			if in.M == nil {
				in.M = map[int]inner{}
			}
			in.M[rapid.IntRange(-9, 9).Draw(t, "key")+k] = drawInner(t)
		}
		b, err := Encode(&in)
		if err != nil {
			t.Fatal(err)
		}
		given := 7
		out := outer{N: 3, Slice: []inner{{Given: &given}, {Given: &given}}, none: &inner{A: 1}, Ptr: &inner{Given: &given}, M: map[int]inner{99: {}}, Nested: [][]int{{1}}}
		if err := Decode(b, &out); err != nil {
			t.Fatal(err)
		}
		for i := range out.Slice {
			if out.Slice[i].Given != &given {
				t.Fatal("a field that is not kept did not stay")
			}
			out.Slice[i].Given = nil
		}
		if out.Ptr != nil {
			if out.Ptr.Given != &given {
				t.Fatal("a pointer's value was made anew")
			}
			out.Ptr.Given = nil
		}
		if !reflect.DeepEqual(in, out) {
			t.Fatalf("%+v\n%+v", in, out)
		}
		again, err := Encode(&out)
		if err != nil || string(again) != string(b) {
			t.Fatal("the same value makes other bytes")
		}
	})
	odd := []float64{math.Copysign(0, -1), math.Inf(1), math.NaN(), math.SmallestNonzeroFloat64}
	b, err := Encode(&odd)
	var got []float64
	if err = errors.Join(err, Decode(b, &got)); err != nil {
		t.Fatal(err)
	}
	for i := range odd {
		if math.Float64bits(got[i]) != math.Float64bits(odd[i]) {
			t.Errorf("%v became %v", odd[i], got[i])
		}
	}
}

// Numbers that slices shared before are not written through.
func TestNotShared(t *testing.T) {
	b, err := Encode(&[]int{1, 2, 3})
	mine := []int{7, 8, 9}
	theirs := mine
	if err = errors.Join(err, Decode(b, &mine)); err != nil || theirs[0] != 7 || mine[2] != 3 {
		t.Errorf("%v, %v, %v", theirs, mine, err)
	}
}

// What cannot be kept is an error that names the field.
func TestWhatCannotBeKept(t *testing.T) {
	type chain struct{ Next []chain }
	for want, v := range map[string]any{
		".Call": &struct{ Call func() }{}, ".C": &struct{ C chan int }{}, ".E": &struct{ X struct{ E error } }{}, ".M": &struct{ M map[string]int }{}, "holds itself": &chain{},
	} {
		if _, err := Encode(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// A field more, less, of another name or type is another version; bytes that were changed or cut are damaged.
func TestOtherAndDamaged(t *testing.T) {
	b, err := Encode(&struct {
		A int
		B []float64
	}{5, []float64{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]any{
		"more": &struct {
			A int
			B []float64
			C int
		}{}, "less": &struct{ A int }{}, "renamed": &struct {
			A int
			D []float64
		}{}, "type": &struct {
			A int64
			B []float64
		}{}, "within": &struct {
			A int
			B []float32
		}{},
	} {
		if err := Decode(b, v); !errors.Is(err, errOther) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for k := range b {
		for _, bad := range [][]byte{b[:k], append(append([]byte{}, b[:k]...), append([]byte{b[k] ^ 1}, b[k+1:]...)...)} {
			var v struct {
				A int
				B []float64
			}
			if err := Decode(bad, &v); !errors.Is(err, ErrDamaged) {
				t.Errorf("byte %d: %v", k, err)
			}
		}
	}
}

// Whatever the bytes are, with a good checksum and type, reading neither panics nor takes more memory than they have room for.
func FuzzDecode(f *testing.F) {
	in := outer{name: "x", Slice: []inner{{A: 1, list: []bool{true}}}, M: map[int]inner{3: {}}, Ptr: &inner{}, Nested: [][]int{{1, 2}, nil}}
	b, err := Encode(&in)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[header : len(b)-footer])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, body []byte) {
		whole := append(append([]byte{}, b[:header]...), body...)
		whole = binary.LittleEndian.AppendUint64(whole, xxh3.Hash(whole))
		var out outer
		if err := Decode(whole, &out); err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		again, err := Encode(&out)
		if err != nil {
			t.Fatal(err)
		}
		var twice outer
		if err := Decode(again, &twice); err != nil {
			t.Fatal(err)
		}
	})
}
