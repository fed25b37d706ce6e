// The process behind late_writer_test: late_writer <UCX_TLS>, orders on descriptor 3.
//
// Each order is a LateOrder and the target's description under a grant. The writer puts the order's
// pieces, filled with its byte, and answers with one letter when the put has ended: 'o'k, 'c'losed
// (the grant), or 'f'ailed. It stops itself (SIGSTOP) in the middle of the copy when it comes to
// read piece `stop_at`, whose page it has protected.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "engine/transport/testing/late_order.h"
#include "engine/transport/testing/testing_options.h"
#include "engine/transport/ucx/ucx_transport.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

std::byte* trap = nullptr;  // the protected page

void OnFault(int, siginfo_t* info, void*) {
  auto* const place = static_cast<std::byte*>(info->si_addr);
  const bool mine = trap != nullptr && place >= trap && place < trap + kLatePieceBytes;
  if (!mine || mprotect(trap, kLatePieceBytes, PROT_READ | PROT_WRITE) != 0) _exit(3);
  raise(SIGSTOP);
}

void Trap() {
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  SKEIN_CHECK(sigaction(SIGSEGV, &action, nullptr) == 0);
}

char Put(Transport* transport, const Region& memory, const LateOrder& order, const Peer& peer) {
  std::memset(memory.base, order.byte, memory.bytes);
  if (order.stop_at >= 0) {
    trap = memory.base + static_cast<size_t>(order.stop_at) * kLatePieceBytes;
    SKEIN_CHECK(mprotect(trap, kLatePieceBytes, PROT_NONE) == 0);
  }
  std::vector<TransferPiece> pieces;
  for (size_t i = 0; i < kLatePieces; ++i) {
    pieces.push_back({memory.id, i * kLatePieceBytes, peer.regions.at(order.region),
                      order.offset + 2 * i * kLatePieceBytes, kLatePieceBytes});
  }
  const auto id =
      transport->PostUnder(peer.grant, peer.id, TransferOp::kPut, pieces, std::chrono::minutes(1));
  if (!id.ok()) return 'f';
  std::vector<TransferCompletion> ended;
  while (ended.empty()) transport->Poll(1, std::chrono::minutes(1), &ended);
  if (trap != nullptr) SKEIN_CHECK(mprotect(trap, kLatePieceBytes, PROT_READ | PROT_WRITE) == 0);
  trap = nullptr;
  if (ended[0].status.ok()) return 'o';
  return absl::IsFailedPrecondition(ended[0].status) ? 'c' : 'f';
}

void Run(const std::string& tls) {
  auto transport = MakeUcxTransport(TestingOptions(tls));
  SKEIN_CHECK_MSG(transport.ok(), transport.status().ToString().c_str());
  constexpr size_t kBytes = kLatePieces * kLatePieceBytes;
  void* const base =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  SKEIN_CHECK(base != MAP_FAILED);
  const auto memory = (*transport)->Register(base, kBytes);
  SKEIN_CHECK(memory.ok());
  std::string message(1 << 16, '\0');
  for (;;) {
    // The transport does not stand still between the orders: it acknowledges.
    std::vector<TransferCompletion> none;
    (*transport)->Poll(0, std::chrono::microseconds(100), &none);
    const ssize_t bytes = recv(3, message.data(), message.size(), MSG_DONTWAIT);
    if (bytes < 0) continue;
    LateOrder order;
    if (bytes < static_cast<ssize_t>(sizeof order)) return;
    std::memcpy(&order, message.data(), sizeof order);
    const auto peer =
        (*transport)->Connect(std::string_view(message).substr(sizeof order, bytes - sizeof order));
    SKEIN_CHECK_MSG(peer.ok(), peer.status().ToString().c_str());
    SKEIN_CHECK(send(3, "b", 1, MSG_NOSIGNAL) == 1);  // it begins
    const char end = Put(transport->get(), *memory, order, *peer);
    SKEIN_CHECK(send(3, &end, 1, MSG_NOSIGNAL) == 1);
  }
}

}  // namespace
}  // namespace skein::engine

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  SKEIN_CHECK(argc == 2);
  skein::engine::Trap();
  skein::engine::Run(argv[1]);
}
