// Command kill ends a process that saves every step by SIGKILL at random moments, again and again: in saves, in
// restores, in commits. After each kill the checkpoint must hold, bit for bit, the state of the undisturbed run at a
// step not before the last that was reported durable to the process. It says nothing of what a loss of power
// loses: the kernel's cache outlives the process; see experiments/checkpoint/powerloss for that.
//
//	go run ./experiments/checkpoint/kill -kills 1000
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/checkpoint"
)

func main() {
	kills := flag.Int("kills", 1000, "how often to kill")
	child := flag.String("child", "", "be the process that trains, on this file")
	staged := flag.Bool("staged", false, "staged saves")
	flag.Parse()
	var err error
	if *child != "" {
		err = train(*child, *staged)
	} else {
		err = run(*kills)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kill:", err)
		os.Exit(1)
	}
}

// state is a training run whose every step follows from the one before.
type state struct {
	step   uint64
	arrays []checkpoint.Array
	values [][]uint64
}

func newState() *state {
	s := &state{}
	for k, n := range []int{40_000, 3, 9_000, 70_000} {
		v := make([]uint64, n)
		for i := range v {
			v[i] = uint64(i * (k + 1))
		}
		s.values = append(s.values, v)
		s.arrays = append(s.arrays, checkpoint.Of(fmt.Sprintf("array%d", k), checkpoint.Parameter, v))
	}
	return s
}

// update takes one array a step further.
func (s *state) update(k int, step uint64) {
	v := s.values[k]
	for i := range v {
		v[i] = v[i]*6364136223846793005 + step
	}
}

func (s *state) advance(to uint64) {
	for s.step < to {
		s.step++
		for k := range s.values {
			s.update(k, s.step)
		}
	}
}

// train goes on from what the file holds until it is killed, and prints every step that is durable.
func train(path string, staged bool) error {
	s := newState()
	o := checkpoint.Options{WhenFull: checkpoint.Block}
	if staged {
		o.Mode = checkpoint.Staged
	}
	f, err := checkpoint.Open(path, s.arrays, o)
	if err != nil {
		return err
	}
	got, _, err := f.Restore(s.arrays)
	if err != nil && !errors.Is(err, checkpoint.ErrEmpty) {
		return err
	}
	fmt.Println("from", got.Step)
	var told sync.Mutex
	for step := got.Step + 1; ; step++ {
		save, err := f.Begin(context.Background(), step)
		if err != nil {
			return err
		}
		for k := len(s.arrays) - 1; k >= 0; k-- {
			f.Ready(s.arrays[k].Name)
			s.update(k, step)
			if err := save.Write(s.arrays[k].Name, s.arrays[k].Data); err != nil {
				return err
			}
		}
		if err := save.Commit(checkpoint.State{Cursor: step * 3}); err != nil {
			return err
		}
		go func() { // ends with the process
			if save.Wait(context.Background()) == nil {
				told.Lock()
				defer told.Unlock()
				fmt.Println("durable", step)
			}
		}()
	}
}

func run(kills int) error {
	folder, err := os.MkdirTemp("", "kill")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // in the temporary folder
	path := filepath.Join(folder, "run.ckpt")
	twin := newState() // the undisturbed run
	f, err := checkpoint.Create(path, twin.arrays, checkpoint.Options{})
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 2))
	ahead, begun := 0, time.Now()
	for k := range kills {
		acked, err := once(self, path, time.Duration(r.Int64N(int64(25*time.Millisecond))), k%2 == 1)
		if err != nil {
			return fmt.Errorf("kill %d: %w", k, err)
		}
		step, err := compare(path, twin, max(acked, twin.step))
		if err != nil {
			return fmt.Errorf("kill %d, after step %d was durable: %w", k, acked, err)
		}
		if step > acked {
			ahead++
		}
		if time.Since(begun) > 2*time.Second && k%100 == 0 {
			fmt.Fprintf(os.Stderr, "\r%d of %d, %s left ", k, kills, (time.Since(begun) / time.Duration(k+1) * time.Duration(kills-k)).Round(time.Second))
		}
	}
	fmt.Printf("%d kills over %d steps: every restore equals the undisturbed run at a step not before the last durable one (%d times a later one)\n", kills, twin.step, ahead)
	return nil
}

// once runs the trainer and kills it some time after its start; it returns the last step that was reported durable.
func once(self, path string, after time.Duration, staged bool) (acked uint64, err error) {
	c := exec.Command(self, "-child", path, fmt.Sprintf("-staged=%v", staged))
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := c.Start(); err != nil {
		return 0, err
	}
	timer := time.AfterFunc(5*time.Millisecond+after, func() { _ = c.Process.Kill() }) // else it ended by itself
	defer timer.Stop()
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break // a line that was cut reports nothing
		}
		if err != nil {
			return 0, err
		}
		var word string
		var step uint64
		if _, err := fmt.Sscan(line, &word, &step); err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		acked = max(acked, step)
	}
	if err := c.Wait(); err != nil && said.Len() > 0 {
		return 0, errors.New(said.String())
	}
	return acked, nil
}

// compare restores and holds the result against the undisturbed run.
func compare(path string, twin *state, least uint64) (uint64, error) {
	s := newState()
	f, err := checkpoint.Open(path, s.arrays, checkpoint.Options{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	defer f.Close()
	got, report, err := f.Restore(s.arrays)
	if errors.Is(err, checkpoint.ErrEmpty) && least == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, slot := range report.Slots {
		if slot.Fault != "" {
			return 0, fmt.Errorf("slot %d looks damaged: %s", slot.Slot, slot.Fault)
		}
	}
	if got.Step < least {
		return got.Step, fmt.Errorf("step %d restored, %d was durable", got.Step, least)
	}
	twin.advance(got.Step)
	for i, a := range twin.arrays {
		if !bytes.Equal(a.Data, s.arrays[i].Data) {
			return got.Step, fmt.Errorf("array %s is not that of step %d", a.Name, got.Step)
		}
	}
	if got.Cursor != got.Step*3 {
		return got.Step, fmt.Errorf("cursor %d is not that of step %d", got.Cursor, got.Step)
	}
	return got.Step, nil
}
