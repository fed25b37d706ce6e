#include "services/skeinctl/chaos/packet_queue.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace skein::services::chaos {
namespace {

constexpr uint32_t kCopied = 128;        // bytes of a packet: its IP and TCP headers
constexpr uint32_t kQueueMax = 1 << 16;  // packets; beyond, they go on undecided
constexpr int kSocketBuffer = 8 << 20;   // bytes
constexpr size_t kMessageMax = 1 << 16;  // bytes
constexpr uint32_t kHeader = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(nfgenmsg));

double NowS() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A message to the queue with one attribute.
std::vector<char> MessageOf(uint16_t kind, uint16_t flags, uint16_t number, uint16_t type,
                            const void* value, size_t size) {
  const size_t attribute = NLA_HDRLEN + NLA_ALIGN(size);
  std::vector<char> bytes(kHeader + attribute);
  nlmsghdr head{};
  head.nlmsg_len = static_cast<uint32_t>(bytes.size());
  head.nlmsg_type = static_cast<uint16_t>((NFNL_SUBSYS_QUEUE << 8) | kind);
  head.nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | flags);
  nfgenmsg about{};
  about.nfgen_family = AF_UNSPEC;
  about.version = NFNETLINK_V0;
  about.res_id = htons(number);
  nlattr told{};
  told.nla_len = static_cast<uint16_t>(NLA_HDRLEN + size);
  told.nla_type = type;
  std::memcpy(bytes.data(), &head, sizeof head);
  std::memcpy(bytes.data() + NLMSG_HDRLEN, &about, sizeof about);
  std::memcpy(bytes.data() + kHeader, &told, sizeof told);
  std::memcpy(bytes.data() + kHeader + NLA_HDRLEN, value, size);
  return bytes;
}

struct Packet {
  bool known = false;
  uint32_t id = 0;  // host order
  std::span<const uint8_t> bytes;
};

// The packet of a message: what follows its netlink header.
Packet PacketOf(std::span<const uint8_t> message) {
  Packet packet;
  size_t at = kHeader - NLMSG_HDRLEN;
  for (nlattr one{}; at + NLA_HDRLEN <= message.size(); at += NLA_ALIGN(one.nla_len)) {
    std::memcpy(&one, message.data() + at, sizeof one);
    if (one.nla_len < NLA_HDRLEN || at + one.nla_len > message.size()) break;
    const auto value = message.subspan(at + NLA_HDRLEN, one.nla_len - size_t{NLA_HDRLEN});
    const int type = one.nla_type & NLA_TYPE_MASK;
    if (type == NFQA_PACKET_HDR && value.size() >= sizeof(nfqnl_msg_packet_hdr)) {
      nfqnl_msg_packet_hdr head{};
      std::memcpy(&head, value.data(), sizeof head);
      packet.id = ntohl(head.packet_id);
      packet.known = true;
    }
    if (type == NFQA_PAYLOAD) packet.bytes = value;
  }
  return packet;
}

}  // namespace

PacketQueue::~PacketQueue() { Close(); }

void PacketQueue::Close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

absl::Status PacketQueue::Open(uint16_t number) {
  number_ = number;
  socket_ = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
  if (socket_ < 0) return absl::UnimplementedError("this kernel has no netfilter");
  const int yes = 1;
  ::setsockopt(socket_, SOL_NETLINK, NETLINK_NO_ENOBUFS, &yes, sizeof yes);
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUFFORCE, &kSocketBuffer, sizeof kSocketBuffer);
  nfqnl_msg_config_cmd bind{};
  bind.command = NFQNL_CFG_CMD_BIND;
  bind.pf = htons(AF_INET);
  if (absl::Status done = Configure(NFQA_CFG_CMD, &bind, sizeof bind); !done.ok()) return done;
  // Packets go on undecided when the queue is full, and large ones come whole.
  const uint32_t flags = htonl(NFQA_CFG_F_FAIL_OPEN | NFQA_CFG_F_GSO);
  const uint32_t longest = htonl(kQueueMax);
  nfqnl_msg_config_params params{};
  params.copy_range = htonl(kCopied);
  params.copy_mode = NFQNL_COPY_PACKET;
  absl::Status done = Configure(NFQA_CFG_PARAMS, &params, sizeof params);
  if (done.ok()) done = Configure(NFQA_CFG_QUEUE_MAXLEN, &longest, sizeof longest);
  if (!done.ok()) return done;
  // The kernel takes flags only with a mask of those that are meant: two attributes.
  std::vector<char> message =
      MessageOf(NFQNL_MSG_CONFIG, 0, number_, NFQA_CFG_FLAGS, &flags, sizeof flags);
  nlattr mask{};
  mask.nla_len = NLA_HDRLEN + sizeof flags;
  mask.nla_type = NFQA_CFG_MASK;
  const size_t at = message.size();
  message.resize(at + NLA_HDRLEN + sizeof flags);
  std::memcpy(message.data() + at, &mask, sizeof mask);
  std::memcpy(message.data() + at + NLA_HDRLEN, &flags, sizeof flags);
  const auto size = static_cast<uint32_t>(message.size());
  std::memcpy(message.data(), &size, sizeof size);
  ::send(socket_, message.data(), message.size(), 0);
  return absl::OkStatus();
}

absl::Status PacketQueue::Configure(uint16_t type, const void* value, size_t size) {
  const auto message = MessageOf(NFQNL_MSG_CONFIG, NLM_F_ACK, number_, type, value, size);
  alignas(nlmsghdr) std::array<char, 4096> answer{};
  if (::send(socket_, message.data(), message.size(), 0) < 0) {
    return absl::UnavailableError(absl::StrCat("a netfilter queue: ", std::strerror(errno)));
  }
  // Rules of a run that was killed may send packets already; TCP sends them again.
  nlmsghdr head{};
  do {
    const ssize_t got = ::recv(socket_, answer.data(), answer.size(), 0);
    if (got < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof(nlmsgerr))) {
      return absl::UnavailableError("a netfilter queue: the kernel did not answer");
    }
    std::memcpy(&head, answer.data(), sizeof head);
  } while (head.nlmsg_type != NLMSG_ERROR);
  nlmsgerr told{};
  std::memcpy(&told, answer.data() + NLMSG_HDRLEN, sizeof told);
  if (told.error == 0) return absl::OkStatus();
  if (told.error == -EPERM && ::geteuid() != 0)
    return absl::PermissionDeniedError("this needs root");
  if (told.error == -EPERM || told.error == -EBUSY) {
    return absl::UnavailableError(absl::StrCat("another process has netfilter queue ", number_));
  }
  return absl::UnimplementedError(
      absl::StrCat("this kernel gives no netfilter queue: ", std::strerror(-told.error)));
}

void PacketQueue::Serve(double for_s,
                        const std::function<PacketVerdict(std::span<const uint8_t>)>& decide) {
  const double until = NowS() + for_s;
  for (double now = NowS(); now < until; now = NowS()) {
    ReleaseDue(now);
    const double next = waiting_.empty() ? until : std::min(until, waiting_.begin()->first);
    pollfd readable{.fd = socket_, .events = POLLIN, .revents = 0};
    const int wait_ms = static_cast<int>(std::ceil(std::max(0.0, next - now) * 1000));
    if (::poll(&readable, 1, wait_ms) > 0) Receive(decide);
  }
}

void PacketQueue::LetGo() {
  pollfd readable{.fd = socket_, .events = POLLIN, .revents = 0};
  while (::poll(&readable, 1, 0) > 0 && (readable.revents & POLLIN) != 0) {
    Receive([](std::span<const uint8_t>) { return PacketVerdict{}; });
  }
  for (const auto& [due_s, id] : waiting_) Tell(id, false);
  waiting_.clear();
}

void PacketQueue::Receive(const std::function<PacketVerdict(std::span<const uint8_t>)>& decide) {
  alignas(nlmsghdr) static thread_local std::array<uint8_t, kMessageMax> bytes;
  const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got <= 0) return;
  const std::span<const uint8_t> all(bytes.data(), static_cast<size_t>(got));
  nlmsghdr head{};
  for (size_t at = 0; at + sizeof head <= all.size(); at += NLMSG_ALIGN(head.nlmsg_len)) {
    std::memcpy(&head, all.data() + at, sizeof head);
    if (head.nlmsg_len < kHeader || at + head.nlmsg_len > all.size()) return;
    if (head.nlmsg_type != ((NFNL_SUBSYS_QUEUE << 8) | NFQNL_MSG_PACKET)) continue;
    const Packet packet =
        PacketOf(all.subspan(at + NLMSG_HDRLEN, head.nlmsg_len - size_t{NLMSG_HDRLEN}));
    if (!packet.known) continue;
    const PacketVerdict verdict = decide(packet.bytes);
    if (verdict.drop || verdict.delay_s <= 0) {
      Tell(packet.id, verdict.drop);
    } else {
      waiting_.emplace(NowS() + verdict.delay_s, packet.id);
    }
  }
}

void PacketQueue::ReleaseDue(double now_s) {
  while (!waiting_.empty() && waiting_.begin()->first <= now_s) {
    Tell(waiting_.begin()->second, false);
    waiting_.erase(waiting_.begin());
  }
}

void PacketQueue::Tell(uint32_t id, bool drop) {
  nfqnl_msg_verdict_hdr verdict{};
  verdict.verdict = htonl(drop ? NF_DROP : NF_ACCEPT);
  verdict.id = htonl(id);
  const auto message =
      MessageOf(NFQNL_MSG_VERDICT, 0, number_, NFQA_VERDICT_HDR, &verdict, sizeof verdict);
  ::send(socket_, message.data(), message.size(), 0);
}

}  // namespace skein::services::chaos
