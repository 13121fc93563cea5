// What an application does with NETLINK_XFRM sockets, printed. Run with and without the library.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/xfrm.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int early = -1, early_errno;

static int xfrm_socket(int flags)
{
	return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | flags, NETLINK_XFRM);
}

__attribute__((constructor)) static void before_main(void)
{
	early = xfrm_socket(0);
	early_errno = errno;
}

static const char *name_of(long result)
{
	return result >= 0 ? "ok" : strerrorname_np(errno);
}

#define SAY(call) do { errno = 0; long r_ = (call); printf("%s: %s %s\n", __func__, #call, name_of(r_)); fflush(stdout); } while (0)

static struct sockaddr_nl address(uint32_t pid, uint32_t groups)
{
	struct sockaddr_nl name = { .nl_family = AF_NETLINK, .nl_pid = pid, .nl_groups = groups };
	return name;
}

static int bind_to(int fd, uint32_t pid, uint32_t groups)
{
	struct sockaddr_nl name = address(pid, groups);
	return bind(fd, (struct sockaddr *)&name, sizeof name);
}

// The port as a word: it differs between runs.
static const char *port_word(uint32_t pid)
{
	return pid == 0 ? "0" : pid == (uint32_t)getpid() ? "pid" : pid == 4711 ? "4711" : "other";
}

static void show_name(const char *what, int fd, int peer, socklen_t room)
{
	struct sockaddr_nl name;
	socklen_t len = room;
	memset(&name, 0xee, sizeof name);
	int r = peer ? getpeername(fd, (void *)&name, &len) : getsockname(fd, (void *)&name, &len);
	printf("%s: %s len %u", what, name_of(r), len);
	if (r == 0 && room >= sizeof name)
		printf(" family %u pad %u port %s groups %#x", name.nl_family, name.nl_pad, port_word(name.nl_pid), name.nl_groups);
	printf("\n");
}

struct request {
	struct nlmsghdr header;
	char body[256];
};

static struct request request(uint16_t type, uint16_t flags, uint32_t seq, uint32_t body)
{
	struct request made;
	memset(&made, 0, sizeof made);
	made.header.nlmsg_len = NLMSG_HDRLEN + body;
	made.header.nlmsg_type = type;
	made.header.nlmsg_flags = NLM_F_REQUEST | flags;
	made.header.nlmsg_seq = seq;
	return made;
}

static void show_messages(const char *what, const char *bytes, long len)
{
	const struct nlmsghdr *header = (const void *)bytes;
	printf("%s: %s", what, name_of(len));
	for (; len >= (long)sizeof *header && header->nlmsg_len >= sizeof *header; header = NLMSG_NEXT(header, len)) {
		printf(" [type %u seq %u port %s", header->nlmsg_type, header->nlmsg_seq, port_word(header->nlmsg_pid));
		if (header->nlmsg_type == NLMSG_ERROR)
			printf(" error %s", strerrorname_np(-((const struct nlmsgerr *)NLMSG_DATA(header))->error));
		printf("]");
		if (header->nlmsg_len > len)
			break;
	}
	printf("\n");
}

static void receive(const char *what, int fd, int flags)
{
	char bytes[8192] __attribute__((aligned(8)));
	struct sockaddr_nl name;
	struct iovec part = { bytes, sizeof bytes };
	struct msghdr message = { .msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &part, .msg_iovlen = 1 };
	memset(&name, 0xee, sizeof name);
	long len = recvmsg(fd, &message, flags);
	show_messages(what, bytes, len);
	if (len >= 0)
		printf("%s: namelen %u family %u port %u flags %#x control %zu\n", what, message.msg_namelen, name.nl_family,
		       name.nl_pid, message.msg_flags, (size_t)message.msg_controllen);
}

static void names(void)
{
	int one = xfrm_socket(0), two = xfrm_socket(SOCK_NONBLOCK), value;
	struct sockaddr_nl name = address(0, 0), wrong = address(0, 0), away = address(77777, 0);
	socklen_t len;
	wrong.nl_family = AF_INET;

	show_name("unbound", one, 0, sizeof name);
	show_name("unbound peer", one, 1, sizeof name);
	SAY(bind(one, (void *)&name, 8));
	SAY(bind(one, (void *)&wrong, sizeof wrong));
	SAY(bind_to(one, 4711, 0x3));
	show_name("bound", one, 0, sizeof name);
	show_name("short room", one, 0, 4);
	SAY(bind_to(one, 4712, 0));
	SAY(bind_to(one, 0, 0));
	SAY(bind_to(one, 4711, 0x1));
	show_name("bound again", one, 0, sizeof name);
	SAY(bind_to(two, 4711, 0));
	SAY(bind_to(two, 0, 0));
	show_name("chosen", two, 0, sizeof name);
	SAY(connect(two, (void *)&name, sizeof name));
	SAY(connect(two, (void *)&name, 1));
	SAY(connect(two, (void *)&wrong, sizeof wrong));
	show_name("connected", two, 1, sizeof name);

	for (int option = SO_TYPE; option; option = option == SO_TYPE ? SO_PROTOCOL : option == SO_PROTOCOL ? SO_DOMAIN : 0) {
		len = sizeof value;
		int r = getsockopt(two, SOL_SOCKET, option, &value, &len);
		printf("option %d: %s %d len %u\n", option, name_of(r), value, len);
	}
	int on = 1, group = 3, none = 0, much = 33, buffer = 1 << 18;
	SAY(setsockopt(two, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer));
	SAY(setsockopt(two, SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on));
	SAY(setsockopt(two, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on));
	SAY(setsockopt(two, SOL_NETLINK, NETLINK_CAP_ACK, &on, 2));
	SAY(setsockopt(two, SOL_NETLINK, 99, &on, sizeof on));
	SAY(setsockopt(two, IPPROTO_IP, IP_TTL, &on, sizeof on));
	SAY(setsockopt(two, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group));
	SAY(setsockopt(two, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &none, sizeof none));
	SAY(setsockopt(two, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &much, sizeof much));
	show_name("member", two, 0, sizeof name);
	SAY(setsockopt(two, SOL_NETLINK, NETLINK_DROP_MEMBERSHIP, &group, sizeof group));
	show_name("no member", two, 0, sizeof name);
	int listed[] = { NETLINK_EXT_ACK, NETLINK_CAP_ACK, NETLINK_PKTINFO, 99 };
	for (int at = 0; at < 4; at++) {
		value = -1;
		len = sizeof value;
		int r = getsockopt(two, SOL_NETLINK, listed[at], &value, &len);
		printf("netlink option %d: %s %d len %u\n", listed[at], name_of(r), r == 0 ? value : -1, len);
	}

	struct request ask = request(XFRM_MSG_GETSADINFO, 0, 5, 4);
	SAY(send(two, &ask, 0, 0));
	SAY(sendto(two, &ask, ask.header.nlmsg_len, 0, (void *)&wrong, sizeof wrong));
	SAY(sendto(two, &ask, ask.header.nlmsg_len, 0, (void *)&name, 4));
	SAY(sendto(two, &ask, ask.header.nlmsg_len, 0, (void *)&away, sizeof away));
	SAY(send(two, &ask, ask.header.nlmsg_len, MSG_OOB));
	SAY(recv(two, &ask, sizeof ask, MSG_OOB));
	receive("nothing there", two, 0);
	close(one);
	close(two);
}

// The socket does not wait, so the answer must be there when the request was sent.
static void requests(void)
{
	int fd = xfrm_socket(SOCK_NONBLOCK);
	struct sockaddr_nl kernel = address(0, 0), from;
	socklen_t len = sizeof from;
	char bytes[4096] __attribute__((aligned(8)));
	struct request ask = request(XFRM_MSG_GETSADINFO, 0, 1, 4);

	SAY(write(fd, &ask, ask.header.nlmsg_len));
	show_name("bound by sending", fd, 0, sizeof from);
	receive("peeked", fd, MSG_PEEK);
	receive("question", fd, 0);
	receive("read out", fd, 0);

	ask = request(0x29, NLM_F_ACK, 2, 64);
	SAY(sendto(fd, &ask, ask.header.nlmsg_len, 0, (void *)&kernel, sizeof kernel));
	long got = recvfrom(fd, bytes, sizeof bytes, 0, (void *)&from, &len);
	show_messages("unknown type", bytes, got);
	printf("from: len %u family %u port %u\n", len, from.nl_family, from.nl_pid);

	// As ip does: how long is it, and then the whole.
	struct iovec part = { 0 };
	struct msghdr message = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1 };
	ask = request(XFRM_MSG_FLUSHSA, NLM_F_ACK, 3, 4);
	ask.body[0] = 50;
	struct iovec whole = { &ask, ask.header.nlmsg_len };
	struct msghdr sent = { .msg_name = &kernel, .msg_namelen = sizeof kernel, .msg_iov = &whole, .msg_iovlen = 1 };
	SAY(sendmsg(fd, &sent, 0));
	got = recvmsg(fd, &message, MSG_PEEK | MSG_TRUNC);
	printf("length: %ld namelen %u flags %#x\n", got, message.msg_namelen, message.msg_flags);
	printf("short: %zd\n", recv(fd, bytes, 8, MSG_PEEK));
	printf("short, told: %zd\n", recv(fd, bytes, 8, MSG_PEEK | MSG_TRUNC));
	receive("acknowledgement", fd, 0);

	ask = request(XFRM_MSG_GETSA, NLM_F_DUMP, 4, 0);
	struct iovec parts[2] = { { &ask, 4 }, { (char *)&ask + 4, ask.header.nlmsg_len - 4 } };
	printf("in parts: %s\n", name_of(writev(fd, parts, 2)));
	struct pollfd ready = { fd, POLLIN, 0 };
	printf("poll: %d\n", poll(&ready, 1, 1000));
	got = read(fd, bytes, sizeof bytes);
	show_messages("dump", bytes, got);

	ask = request(NLMSG_NOOP, NLM_F_ACK, 6, 0);
	SAY(send(fd, &ask, ask.header.nlmsg_len, 0));
	printf("poll: %d\n", poll(&ready, 1, 1000));
	receive("noop", fd, MSG_DONTWAIT);
	close(fd);
}

static void foreign(void)
{
	int ends[2], fd = xfrm_socket(0), local = socket(AF_UNIX, SOCK_DGRAM, 0);
	char bytes[64];
	close(fd);
	// The number is used again, for something else.
	printf("pipe: %s, same number %d\n", name_of(pipe(ends)), ends[0] == fd || ends[1] == fd);
	printf("written %zd\n", write(ends[1], "hello", 5));
	printf("read %zd\n", read(ends[0], bytes, sizeof bytes));
	struct sockaddr_un name = { .sun_family = AF_UNIX }, got;
	socklen_t len = sizeof got;
	SAY(bind(local, (void *)&name, sizeof name.sun_family));
	SAY(getsockname(local, (void *)&got, &len));
	SAY(connect(local, (void *)&got, len));
	printf("sent %zd\n", send(local, "you", 3, 0));
	long heard = recvfrom(local, bytes, sizeof bytes, MSG_DONTWAIT, (void *)&got, &len);
	printf("received %ld family %d len %u\n", heard, got.sun_family, len);
	SAY(write(-1, "x", 1));
	SAY(read(100000, bytes, 1));
	SAY(setsockopt(ends[0], IPPROTO_UDP, 100, &(int){ 2 }, 4));
	SAY(setsockopt(-1, IPPROTO_IP, 17, &(int){ 2 }, 4));
	SAY(open("/no/such/file", O_RDONLY));
	SAY(stat("/no/such/file", &(struct stat){ 0 }));
	SAY(socket(AF_NETLINK, SOCK_STREAM, NETLINK_XFRM));
	int route = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	SAY(bind_to(route, 0, 0));
	show_name("route", route, 0, 12);
	pid_t child = vfork();
	if (child == 0) {
		dup2(ends[1], 9);
		execl("/bin/sh", "sh", "-c", "printf child >&9", (char *)0);
		_exit(127);
	}
	int status;
	waitpid(child, &status, 0);
	printf("child %d, read %zd\n", WEXITSTATUS(status), read(ends[0], bytes, sizeof bytes));
}

static void duplicates(void)
{
	int fd = xfrm_socket(0);
	bind_to(fd, 4711, 0x3);
	int other = dup(fd), third = fcntl(fd, F_DUPFD_CLOEXEC, 50), fourth = dup2(fd, 60);
	close(fd);
	show_name("dup", other, 0, 12);
	show_name("fcntl", third, 0, 12);
	show_name("dup2", fourth, 0, 12);
	struct request ask = request(XFRM_MSG_GETSADINFO, 0, 1, 4);
	SAY(write(third, &ask, ask.header.nlmsg_len));
	receive("from another", other, MSG_DONTWAIT);
	pid_t child = fork();
	if (child == 0) {
		struct request again = request(XFRM_MSG_GETSADINFO, 0, 2, 4);
		int own = xfrm_socket(0);
		SAY(write(other, &again, again.header.nlmsg_len));
		receive("in the child", other, MSG_DONTWAIT);
		SAY(bind_to(own, 0, 0));
		show_name("own of the child", own, 0, 12);
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, 0, 0);
	show_name("after the child", other, 0, 12);
}

static void *ask_often(void *failures)
{
	int fd = xfrm_socket(0);
	char bytes[4096] __attribute__((aligned(8)));
	for (uint32_t seq = 1; seq <= 200; seq++) {
		struct request ask = request(XFRM_MSG_GETSADINFO, 0, seq, 4);
		long sent = send(fd, &ask, ask.header.nlmsg_len, 0);
		long got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
		const struct nlmsghdr *header = (void *)bytes;
		if (sent != 20 || got < 20 || header->nlmsg_seq != seq || header->nlmsg_type != XFRM_MSG_NEWSADINFO)
			__atomic_add_fetch((int *)failures, 1, __ATOMIC_SEQ_CST);
		close(open("/dev/null", O_RDONLY));
	}
	close(fd);
	return 0;
}

static void threads(void)
{
	pthread_t all[8];
	int failures = 0;
	for (int at = 0; at < 8; at++)
		pthread_create(&all[at], 0, ask_often, &failures);
	for (int at = 0; at < 8; at++)
		pthread_join(all[at], 0);
	printf("threads: %d failures\n", failures);
}

static void *wait_in_read(void *fd)
{
	char byte;
	return (void *)(long)read(*(int *)fd, &byte, 1);
}

static void *wait_in_recvmsg(void *fd)
{
	receive("not to be cancelled", *(int *)fd, 0);
	return 0;
}

// As charon ends its threads.
static void cancellations(void)
{
	int ends[2], fd = xfrm_socket(0);
	struct { void *(*wait)(void *); int *fd; } all[] = { { wait_in_read, &ends[0] }, { wait_in_read, &fd }, { wait_in_recvmsg, &fd } };
	if (pipe(ends))
		return;
	for (int at = 0; at < 3; at++) {
		pthread_t thread;
		void *result;
		pthread_create(&thread, 0, all[at].wait, all[at].fd);
		usleep(20000);
		pthread_cancel(thread);
		pthread_join(thread, &result);
		printf("cancelled: %d\n", result == PTHREAD_CANCELED);
		fflush(stdout);
	}
	close(fd);
}

static void same(void)
{
	printf("before main: %s\n", early >= 0 ? "ok" : strerrorname_np(early_errno));
	close(early);
	names();
	requests();
	foreign();
	fflush(stdout);
	duplicates();
	threads();
	cancellations();
}

// Waits for events of group 2 and prints what comes, until an event has the number 99.
static void wait_for_events(const char *how)
{
	int blocks = !strcmp(how, "recv"), fd = xfrm_socket(blocks ? 0 : SOCK_NONBLOCK);
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 0x1234567890 };
	int epoll = epoll_create1(0), calls = 0;
	char bytes[4096] __attribute__((aligned(8)));
	if (!strcmp(how, "edge"))
		event.events |= EPOLLET;
	bind_to(fd, 0, 2);
	if (!strcmp(how, "epoll") || !strcmp(how, "edge"))
		epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
	for (;;) {
		struct epoll_event woken = { 0 };
		struct pollfd entry = { fd, POLLIN, 0 };
		fd_set set;
		FD_ZERO(&set);
		FD_SET(fd, &set);
		if (!strcmp(how, "poll"))
			poll(&entry, 1, -1);
		else if (!strcmp(how, "select"))
			select(fd + 1, &set, 0, 0, 0);
		else if (!blocks && epoll_wait(epoll, &woken, 1, -1) == 1 && woken.data.u64 != event.data.u64)
			printf("wrong data\n");
		long got;
		do {
			calls++;
			got = recv(fd, bytes, sizeof bytes, 0);
			const struct nlmsghdr *header = (void *)bytes;
			if (got >= 0 || errno != EAGAIN)
				show_messages("came", bytes, got);
			fflush(stdout);
			if (got >= (long)sizeof *header && header->nlmsg_seq == 99) {
				struct rusage used;
				getrusage(RUSAGE_SELF, &used);
				long ms = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
				printf("calls %d milliseconds %ld\n", calls, ms);
				return;
			}
		} while (!strcmp(how, "edge") && got >= 0);
	}
}

// Requests of which the server answers none before it goes.
static void unanswered(void)
{
	int fd = xfrm_socket(0), other;
	struct request ask = request(XFRM_MSG_GETSADINFO, 0, 41, 4);
	SAY(write(fd, &ask, ask.header.nlmsg_len));
	ask.header.nlmsg_seq = 42;
	SAY(write(fd, &ask, ask.header.nlmsg_len));
	printf("sent\n");
	fflush(stdout);
	struct iovec part = { 0 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	printf("length: %zd\n", recvmsg(fd, &message, MSG_PEEK | MSG_TRUNC));
	other = dup(fd);
	receive("first", fd, 0);
	receive("second", fd, 0);
	receive("none", fd, MSG_DONTWAIT);
	ask.header.nlmsg_seq = 43;
	SAY(write(fd, &ask, ask.header.nlmsg_len));
	printf("refused\n");
	fflush(stdout);
	// Until there is a server.
	for (;;) {
		long sent = send(other, &ask, ask.header.nlmsg_len, 0);
		if (sent > 0)
			break;
		if (errno != ECONNREFUSED)
			printf("then %s\n", name_of(sent));
	}
	receive("answered", other, MSG_DONTWAIT);
	show_name("after", fd, 0, 12);
}

static void encapsulation(void)
{
	int udp = socket(AF_INET, SOCK_DGRAM, 0), on = 2, value = 0;
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(atoi(getenv("PORT"))) };
	socklen_t len = sizeof value;
	name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	SAY(bind(udp, (void *)&name, sizeof name));
	SAY(setsockopt(udp, IPPROTO_UDP, 100, &on, sizeof on));
	SAY(setsockopt(udp, IPPROTO_UDP, 104, &on, sizeof on));
	getsockopt(udp, IPPROTO_UDP, 100, &value, &len);
	printf("in the kernel %d\n", value);
	getsockopt(udp, SOL_SOCKET, SO_REUSEPORT, &value, &len);
	printf("shared %d\n", value);
	int fd;
	SAY(fd = xfrm_socket(0));
	struct request ask = request(XFRM_MSG_GETSADINFO, 0, 1, 4);
	getchar();
	// The server was replaced meanwhile; whoever notices hands the socket over again.
	SAY(write(fd, &ask, ask.header.nlmsg_len));
}

static void say_mark(int fd)
{
	unsigned mark = 0;
	socklen_t len = sizeof mark;
	getsockopt(fd, SOL_SOCKET, SO_MARK, &mark, &len);
	printf("mark %08x\n", mark);
}

// What daemons ask for their IKE sockets, by either kind of option; and what is no exemption.
static void exempt(void)
{
	struct xfrm_userpolicy_info allow = { .dir = XFRM_POLICY_OUT, .action = XFRM_POLICY_ALLOW };
	struct xfrm_userpolicy_info block = { .dir = XFRM_POLICY_OUT, .action = XFRM_POLICY_BLOCK };
	// struct sadb_x_policy: length, kind, IPSEC_POLICY_BYPASS, IPSEC_DIR_OUTBOUND.
	unsigned char bypass[16] = { 2, 0, 18, 0, 4, 0, 2 };
	int four = socket(AF_INET, SOCK_DGRAM, 0), six = socket(AF_INET6, SOCK_DGRAM, 0), mark = 0x123;
	setsockopt(four, SOL_SOCKET, SO_MARK, &mark, sizeof mark);
	SAY(setsockopt(four, IPPROTO_IP, 17, &block, sizeof block));
	SAY(setsockopt(four, IPPROTO_IP, 17, &allow, 20));
	// With a template: it asks for protection.
	struct { struct xfrm_userpolicy_info info; struct xfrm_user_tmpl template; } protect = { .info = allow };
	SAY(setsockopt(four, IPPROTO_IP, 17, &protect, sizeof protect));
	struct xfrm_userpolicy_info inbound = { .dir = XFRM_POLICY_IN, .action = XFRM_POLICY_ALLOW };
	SAY(setsockopt(four, IPPROTO_IP, 17, &inbound, sizeof inbound));
	say_mark(four);
	SAY(setsockopt(four, IPPROTO_IP, 17, &allow, sizeof allow));
	say_mark(four);
	SAY(setsockopt(four, IPPROTO_IP, 17, NULL, 0));
	say_mark(four);
	SAY(setsockopt(six, IPPROTO_IPV6, 35, &allow, sizeof allow));
	say_mark(six);
	SAY(setsockopt(six, IPPROTO_IPV6, 35, NULL, 0));
	SAY(setsockopt(six, IPPROTO_IPV6, 34, bypass, sizeof bypass));
	say_mark(six);
	SAY(setsockopt(-1, IPPROTO_IP, 17, &allow, sizeof allow));
}

// Sockets that are exempt when another server comes, and one that is not any more.
static void exempt_again(void)
{
	struct xfrm_userpolicy_info allow = { .dir = XFRM_POLICY_OUT, .action = XFRM_POLICY_ALLOW };
	int four = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0), mark = 0x123, fd;
	setsockopt(four, SOL_SOCKET, SO_MARK, &mark, sizeof mark);
	SAY(setsockopt(four, IPPROTO_IP, 17, &allow, sizeof allow));
	SAY(setsockopt(other, IPPROTO_IP, 17, &allow, sizeof allow));
	SAY(setsockopt(other, IPPROTO_IP, 17, NULL, 0));
	say_mark(four);
	say_mark(other);
	SAY(fd = xfrm_socket(0));
	struct request ask = request(XFRM_MSG_GETSADINFO, 0, 1, 4);
	fflush(stdout);
	getchar();
	SAY(write(fd, &ask, ask.header.nlmsg_len));
	say_mark(four);
	say_mark(other);
}

// Sockets that are exempt one by one while the server's mark changes, and one that is not any more.
static void exempt_more(void)
{
	struct xfrm_userpolicy_info allow = { .dir = XFRM_POLICY_OUT, .action = XFRM_POLICY_ALLOW };
	int first = socket(AF_INET, SOCK_DGRAM, 0), second = socket(AF_INET, SOCK_DGRAM, 0), mark = 0x123, fd;
	setsockopt(first, SOL_SOCKET, SO_MARK, &mark, sizeof mark);
	SAY(setsockopt(first, IPPROTO_IP, 17, &allow, sizeof allow));
	say_mark(first);
	SAY(fd = xfrm_socket(0));
	struct request ask = request(XFRM_MSG_GETSADINFO, 0, 1, 4);
	fflush(stdout);
	getchar();
	SAY(setsockopt(second, IPPROTO_IP, 17, &allow, sizeof allow));
	say_mark(first);
	say_mark(second);
	fflush(stdout);
	getchar();
	SAY(write(fd, &ask, ask.header.nlmsg_len));
	ask.header.nlmsg_seq++;
	SAY(write(fd, &ask, ask.header.nlmsg_len));
	say_mark(first);
	say_mark(second);
	SAY(setsockopt(first, IPPROTO_IP, 17, NULL, 0));
	say_mark(first);
}

static void files(void)
{
	const char *paths[] = { "/proc/sys/net/core/xfrm_acq_expires", "/proc/net/xfrm_stat", "/proc/version" };
	for (int at = 0; at < 3; at++) {
		struct stat status;
		char line[64] = "";
		printf("%s: stat %s", paths[at], name_of(stat(paths[at], &status)));
		int fd = open(paths[at], O_RDWR);
		printf(" open %s", name_of(fd));
		FILE *file = fopen(paths[at], "r");
		printf(" fopen %s", file ? "ok" : strerrorname_np(errno));
		if (file && fgets(line, sizeof line, file))
			printf(" says %s", line);
		else
			printf("\n");
	}
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";
	if (!strcmp(what, "same"))
		same();
	else if (!strcmp(what, "wait"))
		wait_for_events(arguments[2]);
	else if (!strcmp(what, "unanswered"))
		unanswered();
	else if (!strcmp(what, "encapsulation"))
		encapsulation();
	else if (!strcmp(what, "exempt"))
		exempt();
	else if (!strcmp(what, "exempt-again"))
		exempt_again();
	else if (!strcmp(what, "exempt-more"))
		exempt_more();
	else if (!strcmp(what, "files"))
		files();
	else if (!strcmp(what, "socket"))
		printf("socket: %s\n", name_of(xfrm_socket(0)));
	else
		return 2;
	return 0;
}
