package forward

import "testing"

// What all have read is not kept, however long the run.
func TestMemoryIsBounded(t *testing.T) {
	m := NewMemory()
	fast, slow := m.Reader(0), m.Reader(1)
	m.Seal()
	for i := range uint32(20_000) {
		if err := fast.Publish(t.Context(), Frame{Step: i}.Encode(nil)); err != nil {
			t.Fatal(err)
		}
		for reader, lag := range map[Bus]uint32{fast: 0, slow: 1000} {
			if i < lag {
				continue
			}
			b, err := reader.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if f, err := DecodeFrame(b.Frame); err != nil || f.Step != i-lag {
				t.Fatalf("frame %d is %+v, %v", i-lag, f, err)
			}
		}
	}
	if n := cap(m.messages); n > 3*dropEvery {
		t.Errorf("%d frames are kept", n)
	}
}
