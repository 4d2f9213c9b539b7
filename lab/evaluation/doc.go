// Package evaluation compares policies on simulated clusters, over scenarios and seeds, with paired intervals, and
// tunes their hyperparameters.
//
//	policies, err := evaluation.Find([]string{"ddqn", "waterfill", "oracle"})
//	results, err := evaluation.Compare(ctx, evaluation.Config{
//		Cases: cases, Scenarios: scenarios, Policies: policies, Trained: trained,
//		Seeds: 20, Rounds: 400,
//	})
//
// See the Example of [Compare]. [Play] is a single run of one policy.
package evaluation
