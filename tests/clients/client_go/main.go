// Command client_go drives client-go, as it is, against a server of Attempts and tells what it sees.
//
// Each line of its output is a JSON object: what one client saw (`event`, `uid`, `name`, `rv`), a
// list it got (`list`, `items`), a request for the whole state (`stream`: `state` at first, `relist`
// later), what its store holds at the end (`store`), or an error that it got over (`error`).
// It ends by SIGTERM.
//
// Usage: KUBECONFIG=FILE client_go SUFFIX [watcher] [pager] [discovery]
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/pager"
	watchtools "k8s.io/client-go/tools/watch"
)

var (
	attempts = schema.GroupVersionResource{Group: "nodus.dev", Version: "v1", Resource: "attempts"}
	output   sync.Mutex
)

const (
	watchSeconds = 3
	// A watch that begins with the state must go on for a second and more after it, however slow the
	// machine is: client-go takes one that ends at once for a failure, and lists again.
	stateSeconds = 15
	pageSize     = 7
	pause        = time.Second
)

type line map[string]any

func tell(client string, said line) {
	said["client"] = client
	text, err := json.Marshal(said)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func tellEvent(client, event string, obj metav1.Object) {
	tell(client, line{"event": event, "uid": obj.GetUID(), "name": obj.GetName(), "rv": obj.GetResourceVersion()})
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func meta(obj any) metav1.Object {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	found, ok := obj.(metav1.Object)
	if !ok {
		panic(fmt.Sprintf("%T is no object", obj))
	}
	return found
}

// shortened makes every watch brief, and tells when the whole state is asked for.
func shortened(client, fieldSelector string) func(*metav1.ListOptions) {
	kind := "state"
	return func(options *metav1.ListOptions) {
		options.FieldSelector = fieldSelector
		seconds := int64(watchSeconds)
		listing := !options.AllowWatchBookmarks
		detector := options.ResourceVersionMatch == metav1.ResourceVersionMatchExact
		initial := options.SendInitialEvents != nil && *options.SendInitialEvents
		if initial {
			seconds = stateSeconds
		}
		if !listing {
			options.TimeoutSeconds = &seconds
		}
		if initial || (listing && !detector && options.Continue == "") {
			tell(client, line{"stream": kind, "from": options.ResourceVersion, "watchlist": initial})
			kind = "relist"
		}
	}
}

// withoutKind takes the kind off an object's metadata. client-go does so with what a watch brings, and
// leaves it on what a JSON list brings: its detector would take that for a difference.
func withoutKind(informer cache.SharedIndexInformer) cache.SharedIndexInformer {
	must(informer.SetTransform(func(obj any) (any, error) {
		if partial, ok := obj.(*metav1.PartialObjectMetadata); ok {
			partial.TypeMeta = metav1.TypeMeta{}
		}
		return obj, nil
	}))
	return informer
}

// follow tells what an informer's handlers are called with, and returns how to tell its store.
func follow(ctx context.Context, client string, informer cache.SharedIndexInformer) func() {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { tellEvent(client, "ADDED", meta(obj)) },
		UpdateFunc: func(before, after any) {
			if meta(before).GetResourceVersion() != meta(after).GetResourceVersion() { // else a relist
				tellEvent(client, "MODIFIED", meta(after))
			}
		},
		DeleteFunc: func(obj any) { tellEvent(client, "DELETED", meta(obj)) },
	})
	must(err)
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			tell(client, line{"ready": true})
		}
	}()
	return func() { tell(client, line{"store": informer.GetStore().List()}) }
}

// retry follows by a RetryWatcher, from a list on, and folds the events itself.
func retry(ctx context.Context, client string, attempts dynamic.ResourceInterface) func() {
	list, err := attempts.List(ctx, metav1.ListOptions{})
	must(err)
	store := map[string]any{}
	var lock sync.Mutex
	for _, item := range list.Items {
		store[string(item.GetUID())] = item.Object
	}
	tell(client, line{"stream": "resume", "from": list.GetResourceVersion()})
	seconds := int64(watchSeconds)
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.TimeoutSeconds = &seconds
			return attempts.Watch(ctx, options)
		},
	})
	must(err)
	tell(client, line{"ready": true})
	go func() {
		for event := range watcher.ResultChan() {
			obj, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				tell(client, line{"error": fmt.Sprintf("%s %v", event.Type, event.Object)})
				continue
			}
			lock.Lock()
			switch event.Type {
			case watch.Deleted:
				delete(store, string(obj.GetUID()))
			case watch.Added, watch.Modified:
				store[string(obj.GetUID())] = obj.Object
			}
			lock.Unlock()
			tellEvent(client, string(event.Type), obj)
		}
		tell(client, line{"ended": true})
	}()
	return func() {
		lock.Lock()
		defer lock.Unlock()
		found := []any{}
		for _, obj := range store {
			found = append(found, obj)
		}
		tell(client, line{"store": found})
	}
}

// repeat runs something until the end, and tells what it failed of.
func repeat(ctx context.Context, client string, what func() (line, error)) {
	ready := false
	for ctx.Err() == nil {
		said, err := what()
		switch {
		case err != nil && ctx.Err() == nil:
			tell(client, line{"error": err.Error()})
		case err == nil:
			tell(client, said)
			if !ready {
				ready = true
				tell(client, line{"ready": true})
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// page lists in pages, as client-go's pager does.
func page(ctx context.Context, attempts dynamic.ResourceInterface) func() (line, error) {
	return func() (line, error) {
		pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return attempts.List(ctx, options)
		})
		pages.PageSize = pageSize
		items := [][2]string{}
		err := pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
			found := meta(obj)
			items = append(items, [2]string{string(found.GetUID()), found.GetResourceVersion()})
			return nil
		})
		if err != nil {
			return nil, err
		}
		whole, paged, err := pages.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		list, err := apimeta.ListAccessor(whole)
		if err != nil {
			return nil, err
		}
		together := [][2]string{}
		err = apimeta.EachListItem(whole, func(obj runtime.Object) error {
			together = append(together, [2]string{string(meta(obj).GetUID()), meta(obj).GetResourceVersion()})
			return nil
		})
		if err != nil {
			return nil, err
		}
		return line{"each": items, "list": list.GetResourceVersion(), "items": together, "paged": paged}, nil
	}
}

// discover tells what the discovery client finds.
func discover(config *rest.Config) func() (line, error) {
	client := discovery.NewDiscoveryClientForConfigOrDie(config)
	return func() (line, error) {
		groups, resources, err := client.ServerGroupsAndResources()
		if err != nil {
			return nil, err
		}
		version, err := client.ServerVersion()
		if err != nil {
			return nil, err
		}
		paths, err := client.OpenAPIV3().Paths()
		if err != nil {
			return nil, err
		}
		names, found, documents := []string{}, []string{}, []string{}
		for _, group := range groups {
			names = append(names, group.Name)
		}
		for _, list := range resources {
			for _, one := range list.APIResources {
				found = append(found, list.GroupVersion+" "+one.Name+" "+one.Kind)
			}
		}
		for path := range paths {
			documents = append(documents, path)
		}
		return line{"groups": names, "resources": found, "minor": version.Minor, "openapi": documents}, nil
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	must(err)
	suffix, extras := os.Args[1], map[string]bool{}
	for _, extra := range os.Args[2:] {
		extras[extra] = true
	}
	client := dynamic.NewForConfigOrDie(config)
	name := func(what string) string { return "go-" + what + "-" + suffix }

	every, running, metadatas := name("dynamic"), name("running"), name("metadata")
	stores := []func(){
		follow(ctx, every, dynamicinformer.NewFilteredDynamicInformer(client, attempts, "", 0,
			cache.Indexers{}, shortened(every, "")).Informer()),
		follow(ctx, running, dynamicinformer.NewFilteredDynamicInformer(client, attempts, "default", 0,
			cache.Indexers{}, shortened(running, "status.phase=Running")).Informer()),
		follow(ctx, metadatas, withoutKind(metadatainformer.NewFilteredMetadataInformer(
			metadata.NewForConfigOrDie(config), attempts, "", 0, cache.Indexers{}, shortened(metadatas, "")).Informer())),
	}
	if extras["watcher"] {
		stores = append(stores, retry(ctx, "go-retry", client.Resource(attempts).Namespace("default")))
	}
	if extras["pager"] {
		go repeat(ctx, "go-pager", page(ctx, client.Resource(attempts)))
	}
	if extras["discovery"] {
		go repeat(ctx, "go-discovery", discover(config))
	}
	<-ctx.Done()
	for _, store := range stores {
		store()
	}
}
