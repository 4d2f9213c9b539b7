package planner_test

// twinSimulate is the length of an iteration of 1F1B, pass by pass, with so many micro-batches.
func twinSimulate(stages []twinPrice, micro int) float64 {
	type pass struct {
		backward bool
		micro    int
	}
	orders := make([][]pass, len(stages)) // passes that are to come
	for i := range stages {
		var forward, backward int
		for range min(micro, len(stages)-i) {
			orders[i] = append(orders[i], pass{false, forward})
			forward++
		}
		for backward < micro {
			orders[i] = append(orders[i], pass{true, backward})
			backward++
			if forward < micro {
				orders[i] = append(orders[i], pass{false, forward})
				forward++
			}
		}
	}
	computed := map[bool][][]float64{} // when, by direction, stage and micro-batch
	for _, backward := range []bool{false, true} {
		for range stages {
			computed[backward] = append(computed[backward], make([]float64, 0, micro))
		}
	}
	free := make([]float64, len(stages))
	half := func(boundary int) float64 { // behind stage boundary
		if boundary < 0 || boundary == len(stages)-1 {
			return 0
		}
		return stages[boundary].Send / 2
	}
	for moved := true; moved; {
		moved = false
		for i := range stages {
			for len(orders[i]) > 0 {
				p, s := orders[i][0], &stages[i]
				peer, length, receive, send := i-1, s.Forward+s.gatherForward+s.Convert/2, half(i-1), half(i)
				if p.backward {
					peer, length, receive, send = i+1, s.Backward+s.Again+s.gatherBackward+s.Convert/2, half(i), half(i-1)
				}
				begin := free[i]
				if peer >= 0 && peer < len(stages) {
					inputs := computed[p.backward][peer]
					if p.micro >= len(inputs) {
						break
					}
					begin = max(begin, inputs[p.micro])
				}
				done := begin + receive + length
				computed[p.backward][i] = append(computed[p.backward][i], done)
				free[i] = done + send
				orders[i], moved = orders[i][1:], true
			}
		}
	}
	end := 0.0
	for i := range stages {
		end = max(end, computed[true][i][micro-1]+stages[i].once())
	}
	return end
}
