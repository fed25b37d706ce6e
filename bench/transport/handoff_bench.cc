// Measures the handoff of KV blocks between two processes: GB/s of one handoff after the other,
// from the first Post to the last completion polled. One transfer per layer, as prefill workers
// post them. See README.md.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "engine/transport/ucx/ucx_transport.h"
#include "scheduler/vocabulary/check.h"

ABSL_FLAG(uint64_t, layers, 32, "layers of the model");
ABSL_FLAG(uint64_t, blocks, 64, "KV blocks of the handoff");
ABSL_FLAG(uint64_t, block_bytes, 32 << 10, "bytes of one block of one layer");
ABSL_FLAG(bool, fragmented, false, "blocks lie in random places instead of one after the other");
ABSL_FLAG(bool, own_wires, true,
          "false: UCX carries everything, by RMA where that is truly remote");
ABSL_FLAG(int, handoffs, 10, "how many to measure; their average is printed");

namespace {

using skein::engine::MakeUcxTransport;
using skein::engine::Peer;
using skein::engine::Region;
using skein::engine::RegionId;
using skein::engine::TransferCompletion;
using skein::engine::TransferOp;
using skein::engine::TransferPiece;
using skein::engine::Transport;

uint64_t HandoffBytes() {
  return absl::GetFlag(FLAGS_layers) * absl::GetFlag(FLAGS_blocks) *
         absl::GetFlag(FLAGS_block_bytes);
}

struct Side {
  std::unique_ptr<Transport> transport;
  Region pool;
};

// Touches every page, so that the first handoff does not pay for it.
Side MakeSide(int fill) {
  auto transport = MakeUcxTransport({.own_wires = absl::GetFlag(FLAGS_own_wires)});
  SKEIN_CHECK_MSG(transport.ok(), transport.status().ToString().c_str());
  auto pool = (*transport)->Register(nullptr, HandoffBytes());
  SKEIN_CHECK_MSG(pool.ok(), pool.status().ToString().c_str());
  std::memset(pool->base, fill, pool->bytes);
  return {*std::move(transport), *pool};
}

// The decode side: describes its pool and sleeps in Poll.
[[noreturn]] void RunTarget(int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Side side = MakeSide(1);
  const RegionId ids[] = {side.pool.id};
  const std::string description = *side.transport->Describe(ids);
  SKEIN_CHECK(write(out, description.data(), description.size()) ==
              static_cast<ssize_t>(description.size()));
  close(out);
  std::vector<TransferCompletion> none;
  for (;;) side.transport->Poll(1, std::chrono::seconds(1), &none);
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

std::vector<uint64_t> BlockPlaces(std::mt19937_64* random) {
  std::vector<uint64_t> places(absl::GetFlag(FLAGS_blocks));
  std::iota(places.begin(), places.end(), 0);
  if (absl::GetFlag(FLAGS_fragmented)) std::shuffle(places.begin(), places.end(), *random);
  return places;
}

// Per layer, its blocks at their places on both sides.
std::vector<std::vector<TransferPiece>> Plan(RegionId local, RegionId remote) {
  std::mt19937_64 random(1);
  const uint64_t bytes = absl::GetFlag(FLAGS_block_bytes);
  const auto from = BlockPlaces(&random);
  const auto to = BlockPlaces(&random);
  std::vector<std::vector<TransferPiece>> layers(absl::GetFlag(FLAGS_layers));
  for (uint64_t layer = 0; layer < layers.size(); ++layer) {
    const uint64_t base = layer * from.size();
    for (size_t i = 0; i < from.size(); ++i) {
      layers[layer].push_back(
          {local, (base + from[i]) * bytes, remote, (base + to[i]) * bytes, bytes});
    }
  }
  return layers;
}

double HandoffSeconds(Transport* transport, const Peer& peer,
                      const std::vector<std::vector<TransferPiece>>& plan) {
  const auto start = std::chrono::steady_clock::now();
  for (const auto& layer : plan) {
    auto id = transport->Post(peer.id, TransferOp::kPut, layer, std::chrono::minutes(1));
    SKEIN_CHECK_MSG(id.ok(), id.status().ToString().c_str());
  }
  std::vector<TransferCompletion> ended;
  while (ended.size() < plan.size()) {
    SKEIN_CHECK(transport->Poll(plan.size(), std::chrono::minutes(1), &ended) > 0);
  }
  for (const auto& end : ended) SKEIN_CHECK_MSG(end.status.ok(), end.status.ToString().c_str());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void RunSource(const std::string& description) {
  Side side = MakeSide(2);
  auto peer = side.transport->Connect(description);
  SKEIN_CHECK_MSG(peer.ok(), peer.status().ToString().c_str());
  const auto plan = Plan(side.pool.id, peer->regions[0]);
  const double first = HandoffSeconds(side.transport.get(), *peer, plan);
  HandoffSeconds(side.transport.get(), *peer, plan);
  double seconds = 0;
  for (int i = 0; i < absl::GetFlag(FLAGS_handoffs); ++i) {
    seconds += HandoffSeconds(side.transport.get(), *peer, plan);
  }
  const double gigabytes = static_cast<double>(HandoffBytes()) / 1e9;
  std::printf("gb_per_s %.3f first %.3f transport %s\n",
              gigabytes * absl::GetFlag(FLAGS_handoffs) / seconds, gigabytes / first,
              side.transport->Inspect(peer->id)->transport.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  int fds[2];
  SKEIN_CHECK(pipe(fds) == 0);
  const pid_t target = fork();  // before UCX starts in either
  if (target == 0) {
    close(fds[0]);
    RunTarget(fds[1]);
  }
  close(fds[1]);
  RunSource(ReadAll(fds[0]));
  kill(target, SIGKILL);
  waitpid(target, nullptr, 0);
}
