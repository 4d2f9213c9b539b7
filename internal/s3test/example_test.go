package s3test_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"evenkeel/internal/s3test"
)

func Example() {
	s, url, stop := s3test.Start()
	defer stop()
	s.Spoil = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		if r.Method == http.MethodPut {
			s3test.Refuse(w, "AccessDenied", http.StatusForbidden)
		}
		return r.Method == http.MethodPut
	}
	r, _ := http.NewRequest(http.MethodPut, url+"/bucket/a", strings.NewReader("a"))
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=key/...")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		panic(err)
	}
	body, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	fmt.Println(answer.StatusCode, string(body), len(s.Objects))
	// Output: 403 <Error><Code>AccessDenied</Code><Message>no</Message></Error> 0
}
