package checkpoint

import (
	"fmt"
	"math"
	"unsafe"
)

// DType is the type of an array's elements.
type DType uint8

// Types, with the numbers that the file uses.
const (
	F16 DType = iota + 1
	BF16
	F32
	F64
	I8
	I16
	I32
	I64
	U8
	U16
	U32
	U64
	Bool
)

// dtypes are the names that safetensors uses, and the bytes of an element.
var dtypes = [...]struct {
	name string
	size int
}{
	F16: {"F16", 2}, BF16: {"BF16", 2}, F32: {"F32", 4}, F64: {"F64", 8}, I8: {"I8", 1}, I16: {"I16", 2}, I32: {"I32", 4},
	I64: {"I64", 8}, U8: {"U8", 1}, U16: {"U16", 2}, U32: {"U32", 4}, U64: {"U64", 8}, Bool: {"BOOL", 1},
}

// String is the type's name in safetensors.
func (d DType) String() string {
	if d == 0 || int(d) >= len(dtypes) {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Size is that of an element in bytes, 0 of an unknown type.
func (d DType) Size() int {
	if int(d) >= len(dtypes) {
		return 0
	}
	return dtypes[d].size
}

// ParseDType finds a type by its safetensors name.
func ParseDType(name string) (DType, error) {
	for d := range dtypes {
		if d > 0 && dtypes[d].name == name {
			return DType(d), nil
		}
	}
	return 0, fmt.Errorf("dtype %q is not known: %w", name, ErrFormat)
}

// Kind says what an array is to the model.
type Kind uint8

// Kinds, with the numbers that the file uses.
const (
	Parameter Kind = iota + 1
	Moment         // of the optimizer
	Buffer         // anything else, such as running means
)

var kindNames = [...]string{Parameter: "parameter", Moment: "moment", Buffer: "buffer"}

func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Limits of the format. They bound what a reader takes into memory before it knows a file.
const (
	maxArrays    = 1 << 20
	maxNameBytes = 1024
	maxDims      = 16
	MaxSlots     = 16
	maxTable     = 256 << 20
	maxSize      = 1 << 50
)

// Array is a named array. Tied weights are one array; frozen ones are arrays like all others.
type Array struct {
	Name  string // 1 to 1024 bytes, unique in the file
	DType DType
	Shape []int // none: a scalar
	Kind  Kind
	// Data is the array's memory, in the machine's byte order. Create and Open look at what describes the array only;
	// Restore fills Data.
	Data []byte
}

// Number is an element that Of and Bytes know.
type Number interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Of describes a slice as an array, without copying it; no shape means one dimension.
func Of[T Number](name string, kind Kind, data []T, shape ...int) Array {
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	return Array{Name: name, DType: dtypeOf[T](), Shape: shape, Kind: kind, Data: Bytes(data)}
}

// Bytes is the memory of a slice, without copying it.
func Bytes[T Number](data []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*int(unsafe.Sizeof(zero)))
}

func dtypeOf[T Number]() DType {
	var zero T
	one := T(1)
	size := unsafe.Sizeof(zero)
	half := 0.5
	switch {
	case T(half) != 0 && size == 4:
		return F32
	case T(half) != 0:
		return F64
	case zero-one < 0:
		return map[uintptr]DType{1: I8, 2: I16, 4: I32, 8: I64}[size]
	}
	return map[uintptr]DType{1: U8, 2: U16, 4: U32, 8: U64}[size]
}

// Len is the array's size in bytes, -1 where its type or shape is none, or it is larger than a file can be.
func (a Array) Len() int64 {
	n := int64(a.DType.Size())
	if n == 0 {
		return -1
	}
	for _, d := range a.Shape {
		if d < 0 || d > 0 && n > maxSize/int64(d) {
			return -1
		}
		n *= int64(d)
	}
	return n
}

// check holds arrays to the limits of the format.
func check(arrays []Array) error {
	if n := len(arrays); n < 1 || n > maxArrays {
		return fmt.Errorf("%d arrays, must be 1 to %d: %w", n, maxArrays, ErrUsage)
	}
	seen := make(map[string]bool, len(arrays))
	total := int64(0)
	for i, a := range arrays {
		n := a.Len()
		switch {
		case len(a.Name) == 0 || len(a.Name) > maxNameBytes:
			return fmt.Errorf("array %d: a name must have 1 to %d bytes, %q has %d: %w", i, maxNameBytes, a.Name, len(a.Name), ErrUsage)
		case seen[a.Name]:
			return fmt.Errorf("array %q comes twice; list tied weights once: %w", a.Name, ErrUsage)
		case len(a.Shape) > maxDims:
			return fmt.Errorf("array %q: %d dimensions, at most %d: %w", a.Name, len(a.Shape), maxDims, ErrUsage)
		case n < 0:
			return fmt.Errorf("array %q: type %v with shape %v cannot be stored: %w", a.Name, a.DType, a.Shape, ErrUsage)
		case a.Kind < Parameter || a.Kind > Buffer:
			return fmt.Errorf("array %q: kind %v, must be Parameter, Moment or Buffer: %w", a.Name, a.Kind, ErrUsage)
		}
		seen[a.Name] = true
		if total += n + block; total > maxSize {
			return fmt.Errorf("arrays of more than %d bytes together: %w", int64(maxSize), ErrUsage)
		}
	}
	return nil
}

// sameArrays compares what a program has with what a file has, and names the first array that differs.
func sameArrays(have, file []Array) error {
	index := make(map[string]Array, len(file))
	for _, a := range file {
		index[a.Name] = a
	}
	for _, a := range have {
		b, ok := index[a.Name]
		switch {
		case !ok:
			return fmt.Errorf("array %q is not in the file; is it another model's?: %w", a.Name, ErrSchema)
		case a.DType != b.DType:
			return fmt.Errorf("array %q is %v, in the file %v: %w", a.Name, a.DType, b.DType, ErrSchema)
		case fmt.Sprint(a.Shape) != fmt.Sprint(b.Shape):
			return fmt.Errorf("array %q has shape %v, in the file %v: %w", a.Name, a.Shape, b.Shape, ErrSchema)
		case a.Kind != b.Kind:
			return fmt.Errorf("array %q is a %v, in the file a %v: %w", a.Name, a.Kind, b.Kind, ErrSchema)
		}
		delete(index, a.Name)
	}
	for _, a := range file {
		if _, left := index[a.Name]; left {
			return fmt.Errorf("the file's array %q is not in the program; is it another model's?: %w", a.Name, ErrSchema)
		}
	}
	return nil
}

// align rounds up.
func align(n, to int64) int64 {
	if n > math.MaxInt64-to {
		return math.MaxInt64 - math.MaxInt64%to
	}
	return (n + to - 1) / to * to
}
