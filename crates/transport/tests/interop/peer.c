/* An SCTP endpoint by usrsctp, whose packets travel as the payload of UDP datagrams on loopback: the part of an
 * independent peer in the tests. `peer serve OURS THEIRS` accepts one association at port 270 and echoes each
 * message on the stream that it came on; `peer open OURS THEIRS` opens one, sends 100,000 octets on stream 5,
 * waits for the answer, and ends it. Says on standard output what happens; ends by itself. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <usrsctp.h>

static int fd;
static struct sockaddr_in there;

static int out(void *to, void *packet, size_t length, uint8_t tos, uint8_t df) {
    (void)to, (void)tos, (void)df;
    return sendto(fd, packet, length, 0, (struct sockaddr *)&there, sizeof there) < 0;
}

static void *in(void *unused) {
    static char packet[65536];
    (void)unused;
    for (;;) {
        ssize_t length = recv(fd, packet, sizeof packet, 0);
        if (length > 0) usrsctp_conninput(&fd, packet, length, 0);
    }
    return NULL;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void say(const char *what, unsigned stream, size_t length) {
    printf("%s %u %zu\n", what, stream, length);
    fflush(stdout);
}

static void give(struct socket *s, unsigned stream, const char *octets, size_t length) {
    struct sctp_sndinfo info = {.snd_sid = stream};
    if (usrsctp_sendv(s, octets, length, NULL, 0, &info, sizeof info, SCTP_SENDV_SNDINFO, 0) < 0) die("send");
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    int opens = strcmp(argv[1], "open") == 0, on = 1, room = 1 << 20;
    alarm(120);
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    there = here;
    there.sin_port = htons(atoi(argv[3]));
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (fd < 0 || bind(fd, (void *)&here, sizeof here)) die("bind");
    usrsctp_init(0, out, NULL);
    usrsctp_sysctl_set_sctp_ecn_enable(0);
    usrsctp_register_address(&fd);
    pthread_t thread;
    pthread_create(&thread, NULL, in, NULL);
    struct socket *s = usrsctp_socket(AF_CONN, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);
    if (!s) die("socket");
    usrsctp_setsockopt(s, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    usrsctp_setsockopt(s, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    struct sctp_initmsg streams = {.sinit_num_ostreams = 64, .sinit_max_instreams = 64};
    usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_INITMSG, &streams, sizeof streams);
    struct sockaddr_conn end;
    memset(&end, 0, sizeof end);
    end.sconn_family = AF_CONN;
    end.sconn_addr = &fd;
    end.sconn_port = htons(opens ? 271 : 270);
    if (usrsctp_bind(s, (void *)&end, sizeof end)) die("usrsctp_bind");
    static char message[300000];
    if (opens) {
        end.sconn_port = htons(270);
        if (usrsctp_connect(s, (void *)&end, sizeof end)) die("connect");
    } else {
        if (usrsctp_listen(s, 1)) die("listen");
        say("ready", 0, 0);
        if (!(s = usrsctp_accept(s, NULL, NULL))) die("accept");
    }
    usrsctp_setsockopt(s, IPPROTO_SCTP, SCTP_RECVRCVINFO, &on, sizeof on);
    say("up", 0, 0);
    if (opens) {
        for (size_t at = 0; at < 100000; at++) message[at] = at % 251;
        give(s, 5, message, 100000);
    }
    for (size_t have = 0;;) {
        struct sctp_rcvinfo info = {0};
        socklen_t from = 0, room = sizeof info;
        unsigned kind = 0;
        int flags = 0;
        ssize_t got = usrsctp_recvv(s, message + have, sizeof message - have, NULL, &from, &info, &room, &kind, &flags);
        if (got <= 0) break;
        have += got;
        if (!(flags & MSG_EOR)) continue;
        say("message", info.rcv_sid, have);
        if (opens) break;
        give(s, info.rcv_sid, message, have);
        have = 0;
    }
    usrsctp_close(s);
    for (int left = 200; left > 0 && usrsctp_finish(); left--) usleep(50000);
    say("end", 0, 0);
    return 0;
}
