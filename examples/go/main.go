// A client of each service of signalboxd. Run generate.sh once, then: go run . COMMAND [DESTINATION]
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"signalbox.example/api/boomerang/v1"
	"signalbox.example/api/casp/v1"
	"signalbox.example/api/gist/v1"
	"signalbox.example/api/node/v1"
	"signalbox.example/api/ping/v1"
	"signalbox.example/api/qos/v1"
	"signalbox.example/api/rsvp/v1"
	"signalbox.example/api/v1"
)

func main() {
	commands := map[string]func(context.Context, *grpc.ClientConn, string) error{
		"node": about, "policy": policy, "reserve": reserve, "pinhole": pinhole, "watch": watch,
		"ping": pings, "tables": tables, "sender": sender, "application": application,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		log.Fatal("usage: client node|policy|reserve|pinhole|watch|ping|tables|sender|application [DESTINATION]")
	}
	destination := "10.0.9.1"
	if len(os.Args) > 2 {
		destination = os.Args[2]
	}
	socket := os.Getenv("SIGNALBOX_SOCKET")
	if socket == "" {
		socket = "/run/signalbox/signalboxd.sock"
	}
	connection, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	if err := commands[os.Args[1]](context.Background(), connection, destination); err != nil {
		log.Fatal(err)
	}
}

// about shows what runs, and checks a configuration.
func about(ctx context.Context, connection *grpc.ClientConn, _ string) error {
	client := node.NewNodeClient(connection)
	answer, err := client.GetNode(ctx, &node.GetNodeRequest{})
	if err != nil {
		return err
	}
	fmt.Println(answer.GetName(), answer.GetVersion(), answer.GetProtocols())
	check, err := client.CheckConfig(ctx, &node.CheckConfigRequest{Toml: "version = 1\n[node]\nnam = \"r1\"\n"})
	if err != nil {
		return err
	}
	for _, problem := range check.GetProblems() {
		fmt.Println(problem.GetSeverity(), problem.GetKey(), problem.GetMessage())
	}
	interfaces, err := client.ListInterfaces(ctx, &node.ListInterfacesRequest{})
	if err != nil {
		return err
	}
	return each(interfaces, func(page *node.ListInterfacesResponse) {
		for _, one := range page.GetInterfaces() {
			fmt.Println(one.GetInterface().GetName(), one.GetReservedOctetsPerS())
		}
	})
}

// policy shows what the rules of the node would answer to a request.
func policy(ctx context.Context, connection *grpc.ClientConn, destination string) error {
	answer, err := signalbox.NewReservationsClient(connection).TestPolicy(ctx, &signalbox.TestPolicyRequest{
		Flow:    &signalbox.FlowSpec{Destination: &destination},
		Traffic: &signalbox.TokenBucket{RateOctetsPerS: 125_000},
	})
	if err == nil {
		fmt.Println(answer.GetAllowed(), answer.GetRule())
	}
	return err
}

// reserve makes a reservation, changes its rate, and releases it.
func reserve(ctx context.Context, connection *grpc.ClientConn, destination string) error {
	call, err := signalbox.NewReservationsClient(connection).Reserve(ctx)
	if err != nil {
		return err
	}
	open := &signalbox.ReserveOpen{
		Flow: &signalbox.FlowSpec{
			Destination: &destination, IpProtocol: proto.Uint32(17), DestinationPort: proto.Uint32(5004),
		},
		Traffic: &signalbox.TokenBucket{RateOctetsPerS: 125_000},
	}
	if err := call.Send(&signalbox.ReserveRequest{Request: &signalbox.ReserveRequest_Open{Open: open}}); err != nil {
		return err
	}
	// What is sent after the first and the second grant.
	next := []*signalbox.ReserveRequest{
		{Request: &signalbox.ReserveRequest_Change{Change: &signalbox.ReserveChange{
			Traffic: &signalbox.TokenBucket{RateOctetsPerS: 250_000}}}},
		{Request: &signalbox.ReserveRequest_Release{Release: &signalbox.ReserveRelease{}}},
	}
	return each(call, func(response *signalbox.ReserveResponse) {
		fmt.Printf("%T\n", response.GetEvent())
		if grant := response.GetGranted(); grant != nil && len(next) > 0 {
			fmt.Println(grant.GetTraffic().GetRateOctetsPerS(), "octets/s")
			err = errors.Join(err, call.Send(next[0]))
			next = next[1:]
		}
	})
}

// pinhole opens the firewalls on the path for a flow, and closes them.
func pinhole(ctx context.Context, connection *grpc.ClientConn, destination string) error {
	call, err := signalbox.NewPinholesClient(connection).OpenPinhole(ctx)
	if err != nil {
		return err
	}
	open := &signalbox.PinholeOpen{
		Action: signalbox.PinholeAction_PINHOLE_ACTION_OPEN,
		Flow: &signalbox.FlowSpec{
			Destination: &destination, IpProtocol: proto.Uint32(17), DestinationPort: proto.Uint32(5004),
		},
	}
	if err := call.Send(&signalbox.OpenPinholeRequest{Request: &signalbox.OpenPinholeRequest_Open{Open: open}}); err != nil {
		return err
	}
	release := &signalbox.OpenPinholeRequest{Request: &signalbox.OpenPinholeRequest_Release{
		Release: &signalbox.PinholeRelease{}}}
	return each(call, func(response *signalbox.OpenPinholeResponse) {
		fmt.Printf("%T\n", response.GetEvent())
		if response.GetGranted() != nil {
			err = errors.Join(err, call.Send(release))
		}
	})
}

// watch shows the state of the node, and changes for ten seconds.
func watch(ctx context.Context, connection *grpc.ClientConn, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	events, err := node.NewNodeClient(connection).WatchEvents(ctx,
		&node.WatchEventsRequest{InitialState: true})
	if err != nil {
		return err
	}
	err = each(events, func(event *node.WatchEventsResponse) { fmt.Println(event) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// pings measures the path to a destination.
func pings(ctx context.Context, connection *grpc.ClientConn, destination string) error {
	replies, err := ping.NewPingClient(connection).Ping(ctx, &ping.PingRequest{
		Flow: &signalbox.FlowSpec{Destination: &destination}, Count: proto.Uint32(3),
	})
	if err != nil {
		return err
	}
	return each(replies, func(response *ping.PingResponse) {
		if reply := response.GetReply(); reply != nil {
			fmt.Println(reply.GetRttUs(), "us", reply.GetHops())
		}
	})
}

// tables shows what GIST, the QoS NSLP, RSVP, Boomerang and CASP hold.
func tables(ctx context.Context, connection *grpc.ClientConn, _ string) error {
	peers, err := gist.NewGistClient(connection).ListPeers(ctx, &gist.ListPeersRequest{})
	if err == nil {
		err = each(peers, func(page *gist.ListPeersResponse) { fmt.Println("peers:", page.GetPeers()) })
	}
	sessions, qosErr := qos.NewQosClient(connection).ListSessions(ctx, &qos.ListSessionsRequest{})
	if qosErr == nil {
		qosErr = each(sessions, func(page *qos.ListSessionsResponse) { fmt.Println("qos:", page.GetSessions()) })
	}
	neighbors, rsvpErr := rsvp.NewRsvpClient(connection).ListNeighbors(ctx, &rsvp.ListNeighborsRequest{})
	if rsvpErr == nil {
		rsvpErr = each(neighbors, func(page *rsvp.ListNeighborsResponse) {
			fmt.Println("rsvp:", page.GetNeighbors())
		})
	}
	flows, loopErr := boomerang.NewBoomerangClient(connection).ListFlows(ctx, &boomerang.ListFlowsRequest{})
	if loopErr == nil {
		loopErr = each(flows, func(page *boomerang.ListFlowsResponse) {
			fmt.Println("boomerang:", page.GetFlows())
		})
	}
	nodes, caspErr := casp.NewCaspClient(connection).ListPeers(ctx, &casp.ListPeersRequest{})
	if caspErr == nil {
		caspErr = each(nodes, func(page *casp.ListPeersResponse) { fmt.Println("casp:", page.GetPeers()) })
	}
	return errors.Join(err, qosErr, rsvpErr, loopErr, caspErr)
}

// sender announces a sender by RSVP, and shows the reservations of receivers for ten seconds.
func sender(ctx context.Context, connection *grpc.ClientConn, destination string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	call, err := rsvp.NewRsvpClient(connection).Session(ctx)
	if err != nil {
		return err
	}
	traffic := &signalbox.TokenBucket{RateOctetsPerS: 125_000}
	requests := []*rsvp.SessionRequest{
		{Request: &rsvp.SessionRequest_Register{Register: &rsvp.Register{
			Destination: destination, IpProtocol: 17, DestinationPort: proto.Uint32(5004)}}},
		{Request: &rsvp.SessionRequest_Sender{Sender: &rsvp.Sender{
			Filter:  &rsvp.Filter{Selector: &rsvp.Filter_SourcePort{SourcePort: 5004}},
			Traffic: traffic}}},
	}
	for _, request := range requests {
		if err := call.Send(request); err != nil {
			return err
		}
	}
	err = each(call, func(response *rsvp.SessionResponse) { fmt.Println(response) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// application is a signaling application of GIST: it sends a message along the path, and shows what it receives for ten
// seconds.
func application(ctx context.Context, connection *grpc.ClientConn, destination string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	source, err := ownAddress(destination)
	if err != nil {
		return err
	}
	call, err := gist.NewGistClient(connection).Application(ctx)
	if err != nil {
		return err
	}
	register := &gist.ApplicationRequest_Register{Register: &gist.Register{NslpId: 32720}}
	if err := call.Send(&gist.ApplicationRequest{Request: register}); err != nil {
		return err
	}
	session := make([]byte, 16)
	rand.Read(session)
	message := &gist.ApplicationRequest_SendMessage{SendMessage: &gist.SendMessage{
		Data:      []byte("hello, next node"),
		SessionId: session,
		Mri:       &gist.Mri{Flow: &signalbox.FlowSpec{Source: &source, Destination: &destination}},
		Handle:    proto.Uint64(1),
	}}
	err = each(call, func(response *gist.ApplicationResponse) {
		fmt.Println(response)
		if response.GetRegistered() != nil && destination != source {
			err = errors.Join(err, call.Send(&gist.ApplicationRequest{Request: message}))
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ownAddress is the source address of packets to a destination.
func ownAddress(destination string) (string, error) {
	// Nothing is sent: the kernel looks up the route.
	socket, err := net.Dial("udp", net.JoinHostPort(destination, "9"))
	if err != nil {
		return "", err
	}
	defer socket.Close()
	return socket.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// each calls do for each message of a stream.
func each[Message any](stream interface{ Recv() (Message, error) }, do func(Message)) error {
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		do(message)
	}
}
