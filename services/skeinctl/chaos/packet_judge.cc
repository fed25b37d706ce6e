#include "services/skeinctl/chaos/packet_judge.h"

#include <optional>
#include <utility>

namespace skein::services::chaos {
namespace {

constexpr uint8_t kTcp = 6;
constexpr size_t kProtocolAt = 9;
constexpr size_t kFlagsAt = 13;  // in the TCP header
constexpr uint8_t kSyn = 0x02;
constexpr uint8_t kAck = 0x10;

struct TcpHeader {
  uint16_t source = 0;
  uint16_t target = 0;
  bool opens = false;  // the first packet of a connection
};

std::optional<TcpHeader> TcpHeaderOf(std::span<const uint8_t> packet) {
  if (packet.size() <= kProtocolAt || packet[0] >> 4 != 4) return std::nullopt;
  const size_t at = size_t{packet[0] & 0xFU} * 4;
  if (packet[kProtocolAt] != kTcp || packet.size() <= at + kFlagsAt) return std::nullopt;
  const auto port = [&](size_t i) {
    return static_cast<uint16_t>(packet[at + i] << 8 | packet[at + i + 1]);
  };
  return TcpHeader{.source = port(0),
                   .target = port(2),
                   .opens = (packet[at + kFlagsAt] & (kSyn | kAck)) == kSyn};
}

}  // namespace

PacketJudge::PacketJudge(NetworkFault fault, pid_t victim, std::map<pid_t, Side> sides,
                         std::function<SocketTable()> look)
    : fault_(fault), victim_(victim), sides_(std::move(sides)), look_(std::move(look)) {
  Look();
}

void PacketJudge::Look() {
  SocketTable now = look_();
  table_.listeners = std::move(now.listeners);
  for (const auto& [ports, pid] : now.connections) table_.connections[ports] = pid;
}

bool PacketJudge::IsPeer(pid_t pid) const {
  const auto peer = sides_.find(pid);
  const auto victim = sides_.find(victim_);
  if (pid == victim_ || peer == sides_.end() || victim == sides_.end()) return false;
  const bool control = peer->second == Side::kOrchestrator || victim->second == Side::kOrchestrator;
  return fault_.plane == Plane::kBoth || control == (fault_.plane == Plane::kControl);
}

std::set<uint16_t> PacketJudge::Ports() const {
  std::set<uint16_t> ports;
  for (const auto& [port, pid] : table_.listeners) {
    if (pid == victim_ || IsPeer(pid)) ports.insert(port);
  }
  return ports;
}

PacketVerdict PacketJudge::Decide(std::span<const uint8_t> packet) {
  const auto header = TcpHeaderOf(packet);
  if (!header) return {};
  const std::pair<uint16_t, uint16_t> ports(header->source, header->target);
  const std::pair<uint16_t, uint16_t> back(header->target, header->source);
  // The ports of a new connection may have been another one's.
  const bool known = table_.connections.contains(ports) || table_.connections.contains(back);
  if (header->opens || !known) {
    table_.connections.erase(ports);
    table_.connections.erase(back);
    Look();
    table_.connections.try_emplace(ports, 0);  // a stranger's: not looked for again
  }
  const pid_t from = table_.OwnerOf(header->source, header->target);
  const pid_t to = table_.OwnerOf(header->target, header->source);
  const bool meant =
      (from == victim_ && fault_.out && IsPeer(to)) || (to == victim_ && fault_.in && IsPeer(from));
  if (!meant) return {};
  const bool lost = fault_.loss > 0 && random_.Uniform() < fault_.loss;
  return {.drop = lost, .delay_s = fault_.delay_s};
}

}  // namespace skein::services::chaos
