#include "services/skeinctl/chaos/network_impairment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/skeinctl/chaos/local_process.h"
#include "services/skeinctl/chaos/socket_table.h"

namespace skein::services::chaos {
namespace {

constexpr uint16_t kQueue = 7341;
constexpr const char* kChain = "SKEIN_CHAOS";
constexpr double kLookS = 0.02;   // how often the thread looks whether it ends
constexpr size_t kPortsMax = 15;  // of one rule

absl::Status Iptables(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"iptables", "--wait", "--table=raw"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return OutputOf(command).status();
}

// Also what a killed run has left.
absl::Status RemoveRules() {
  while (Iptables({"--delete", "OUTPUT", "--jump", kChain}).ok()) {
  }
  if (!Iptables({"--list-rules", kChain}).ok()) return absl::OkStatus();
  absl::Status done = Iptables({"--flush", kChain});
  done.Update(Iptables({"--delete-chain", kChain}));
  return done;
}

// The rules of our own chain; nothing leads to it yet.
absl::Status AddRules(const std::set<uint16_t>& ports) {
  if (absl::Status done = Iptables({"--new-chain", kChain}); !done.ok()) return done;
  const std::vector<uint16_t> all(ports.begin(), ports.end());
  for (size_t i = 0; i < all.size(); i += kPortsMax) {
    const auto end = all.begin() + static_cast<ptrdiff_t>(std::min(all.size(), i + kPortsMax));
    const std::string some = absl::StrJoin(all.begin() + static_cast<ptrdiff_t>(i), end, ",");
    absl::Status done = Iptables({"--append", kChain, "--out-interface", "lo", "--protocol", "tcp",
                                  "--match", "multiport", "--ports", some, "--jump", "NFQUEUE",
                                  "--queue-num", absl::StrCat(kQueue), "--queue-bypass"});
    if (!done.ok()) return done;
  }
  return absl::OkStatus();
}

// Opens the queue first: who has it may remove rules.
absl::Status Prepare(PacketQueue* queue, const std::set<uint16_t>& ports) {
  if (geteuid() != 0) {
    return absl::PermissionDeniedError("faults of the network need root: run skeinctl as root");
  }
  if (absl::Status done = queue->Open(kQueue); !done.ok()) {
    return absl::Status(done.code(), absl::StrCat("faults of the network: ", done.message()));
  }
  absl::Status done = RemoveRules();
  if (done.ok()) done = AddRules(ports);
  if (done.ok()) return done;
  RemoveRules().IgnoreError();
  return absl::UnimplementedError(absl::StrCat(
      "faults of the network need iptables and a kernel with NFQUEUE: ", done.message()));
}

}  // namespace

absl::Status NetworkImpairment::Possible() {
  PacketQueue queue;
  if (absl::Status done = Prepare(&queue, {1}); !done.ok()) return done;
  return RemoveRules();
}

absl::StatusOr<std::unique_ptr<NetworkImpairment>> NetworkImpairment::Start(
    NetworkFault fault, pid_t victim, std::map<pid_t, Side> sides) {
  std::set<pid_t> pids;
  for (const auto& [pid, side] : sides) pids.insert(pid);
  PacketJudge judge(fault, victim, std::move(sides), [pids] { return SocketTable::Of(pids); });
  const std::set<uint16_t> ports = judge.Ports();
  if (ports.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "process ", victim, " and its peers listen at no TCP port of this network namespace"));
  }
  std::unique_ptr<NetworkImpairment> one(new NetworkImpairment(std::move(judge)));
  if (absl::Status done = Prepare(&one->queue_, ports); !done.ok()) return done;
  if (absl::Status done = Iptables({"--insert", "OUTPUT", "--jump", kChain}); !done.ok()) {
    RemoveRules().IgnoreError();
    return done;
  }
  one->thread_ = std::thread([it = one.get()] {
    while (!it->ends_) {
      it->queue_.Serve(kLookS,
                       [it](std::span<const uint8_t> packet) { return it->judge_.Decide(packet); });
    }
  });
  return one;
}

NetworkImpairment::~NetworkImpairment() { End().IgnoreError(); }

absl::Status NetworkImpairment::End() {
  if (!thread_.joinable()) return absl::OkStatus();
  ends_ = true;
  thread_.join();
  queue_.LetGo();
  absl::Status removed = RemoveRules();
  queue_.LetGo();
  queue_.Close();
  return removed;
}

}  // namespace skein::services::chaos
