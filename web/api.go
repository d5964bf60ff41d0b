package web

import (
	"context"
	"errors"
	"net/http"
	"path"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/allotment-hpc/allotment/pba/calendar"
	"github.com/allotment-hpc/allotment/pba/desk"
)

// apiPath is where the API is. Its answers are what pba prints with --json.
const apiPath = "/api/v1"

// The API describes itself there, in OpenAPI 3.1 (.json and .yaml).
const apiDescription = apiPath + "/openapi"

// api is the API of a server.
type api struct {
	huma.API
	server *Server
}

// addAPI adds the API's routes.
func (s *Server) addAPI(mux *http.ServeMux) {
	c := huma.DefaultConfig("Allotment", "1")
	c.Info.Description = "What pba does, as pba prints it with --json. On the socket the caller is the user who connects; else one who is signed in."
	c.DocsPath, c.SchemasPath = "", "" // their pages load scripts from another host
	c.OpenAPIPath = apiDescription
	c.CreateHooks = nil // no $schema in answers
	types := huma.NewMapRegistry("#/components/schemas/", typeName)
	for _, written := range []any{calendar.Week{}, calendar.Range{}} { // as texts
		types.RegisterTypeAlias(reflect.TypeOf(written), reflect.TypeFor[string]())
	}
	c.Components = &huma.Components{Schemas: types}
	a := api{humago.New(mux, c), s}
	a.UseMiddleware(a.known)
	a.addPlan()
	a.addRequests()
	a.addViews()
	a.addHosts()
	a.addStates()
	mux.HandleFunc(apiPath+"/", func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusNotFound, "there is no such address: see "+apiDescription+".json")
	})
}

// typeName names a type's schema: packages have types of the same name.
func typeName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if of := path.Base(t.PkgPath()); t.Name() != "" && of != "web" && of != "." {
		name = strings.ToUpper(of[:1]) + of[1:] + name
	}
	return name
}

// known refuses callers who are not known. All may read the description.
func (a api) known(ctx huma.Context, next func(huma.Context)) {
	if who, _ := ctx.Context().Value(callerKey).(caller); !who.known() && ctx.Operation().OperationID != "" {
		_ = huma.WriteErr(a.API, ctx, http.StatusUnauthorized, unknownCaller) // the client may be gone
		return
	}
	next(ctx)
}

const unknownCaller = "type pba login on a machine of the farm, and open the link that it prints"

// problem answers with an error by RFC 9457.
func problem(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = huma.DefaultJSONFormat.Marshal(w, &huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: text}) // the client may be gone
}

// add adds an operation: it is done at the caller's own desk.
func add[I, O any](a api, method, route, id, summary string, do func(context.Context, *desk.Desk, *I) (*O, error)) {
	o := huma.Operation{
		Method: method, Path: apiPath + route, OperationID: id, Summary: summary,
		Errors: []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusServiceUnavailable},
	}
	if method != http.MethodGet {
		o.Errors = append(o.Errors, http.StatusPreconditionFailed, http.StatusUnprocessableEntity)
	}
	huma.Register(a.API, o, func(ctx context.Context, in *I) (*O, error) {
		who, _ := ctx.Value(callerKey).(caller)
		d, err := a.server.Desks.Open(ctx, who.Visitor)
		if err != nil {
			return nil, a.server.apiError(method, id, who, err)
		}
		defer d.Close()
		out, err := do(ctx, d, in)
		if err != nil {
			return nil, a.server.apiError(method, id, who, err)
		}
		return out, nil
	})
}

// apiError gives an error of a desk its status.
func (s *Server) apiError(method, id string, who caller, err error) error {
	var own huma.StatusError
	if errors.As(err, &own) {
		return own
	}
	status := statusOf(method, err)
	if status >= http.StatusInternalServerError {
		s.Log.Error("a request failed", "user", who.Name, "operation", id, "error", err)
	}
	return huma.NewError(status, err.Error())
}

// Matching is the header by which a client that has an answer asks whether it is still so.
type Matching struct {
	IfNoneMatch string `header:"If-None-Match" doc:"the ETag of the answer that the client has"`
}

// same is an error that stands for 304 if the client has what has this tag.
func (m Matching) same(tag string) error {
	for one := range strings.SplitSeq(m.IfNoneMatch, ",") {
		if strings.TrimPrefix(strings.TrimSpace(one), "W/") == tag {
			return huma.ErrorWithHeaders(huma.Status304NotModified(), http.Header{"ETag": {tag}})
		}
	}
	return nil
}

// planTag is the ETag of the plan at a revision.
func planTag(revision int64) string { return `"plan-` + strconv.FormatInt(revision, 10) + `"` }

// Expecting is the header by which a client says which plan it changes.
type Expecting struct {
	IfMatch string `header:"If-Match" required:"true" doc:"the ETag of the plan that was read, so that no other's edit is overwritten; * changes it as it is" example:"\"plan-42\""`
}

// revision has edits fail that are made to another plan, by what a desk expects.
func (e Expecting) revision(expect func(int64)) error {
	if e.IfMatch == "*" {
		return nil
	}
	number, ok := strings.CutPrefix(strings.Trim(e.IfMatch, `"`), "plan-")
	revision, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil {
		return huma.Error400BadRequest(`If-Match: want * or an ETag of the plan, such as "plan-42"`)
	}
	expect(revision)
	return nil
}
