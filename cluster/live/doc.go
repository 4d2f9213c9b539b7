// Package live is a state machine for the rounds of a real job: events come in with their times, verdicts and reports
// come out. It does no I/O and has no clock, so that a test can simulate any job, and a job's log can be replayed.
//
// A job is started, and started anew when it loses a process or gains one. Each start is a [Generation] with its
// own ranks, its own rounds from 0 and plans from 1:
//
//	err := registration.Validate()                        // ranks, with devices and memory
//	c, err := registration.Cluster("llama-7b", catalogue) // its nodes; profiles where they are known
//	g := live.NewGeneration(c)
//	g.Hand(plan, now)                                     // a plan of agent.Control
//	verdict, report, err := g.Take(reportOfAllRanks, now) // a report: accepted, duplicate or old
//
// The accepted report goes through [Generation.Observe] to the controller, whose plan is handed out by the next Hand. Sizes
// run some rounds after they were decided, so a report names the plan that its round ran, and is judged by that
// plan's shares.
//
// A job with all-reduce sends one report per round, for all ranks. Without all-reduce each rank sends its own
// ([Generation.TakeOwn]), and the round rule of package cluster closes the rounds.
package live
