package data

import (
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

// Text is a text cut into samples of equal length: the inputs are characters, the targets are the characters after
// them. A character is its number in the sorted list of those that occur.
type Text struct {
	characters []rune
	tokens     []int32
	length     int
}

// NewText reads UTF-8. What is left over at the end of the text is no sample. Errors are bad input.
func NewText(r io.Reader, name string, length int) (*Text, error) {
	if length < 1 {
		return nil, fmt.Errorf("%w: %s: samples of %d characters; want at least 1", errFormat, name, length)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errFormat, name, err)
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("%w: %s: larger than %d bytes", errFormat, name, maxFileBytes)
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%w: %s: not UTF-8 text", errFormat, name)
	}
	all := []rune(string(text))
	if len(all) <= length {
		return nil, fmt.Errorf("%w: %s: %d characters; one sample needs %d", errFormat, name, len(all), length+1)
	}
	t := &Text{characters: slices.Clone(all), length: length}
	slices.Sort(t.characters)
	t.characters = slices.Compact(t.characters)
	number := make(map[rune]int32, len(t.characters))
	for i, c := range t.characters {
		number[c] = int32(i)
	}
	for _, c := range all {
		t.tokens = append(t.tokens, number[c])
	}
	return t, nil
}

// Len is Set's.
func (t *Text) Len() int { return (len(t.tokens) - 1) / t.length }

// Shape is Set's.
func (t *Text) Shape() (inputs, targets, classes, tokens int) {
	return t.length, t.length, len(t.characters), len(t.characters)
}

// Sample is Set's.
func (t *Text) Sample(i int, inputs []float32, targets []int32) {
	window := t.tokens[i*t.length:][:t.length+1]
	for j := range t.length {
		inputs[j], targets[j] = float32(window[j]), window[j+1]
	}
}
