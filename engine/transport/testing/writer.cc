// The process behind WriterProcess: writer <UCX_TLS> <region> <puts> <host|far>, the
// target's description on descriptor 3. "far": from the memory of a FarDevice that opens others.
// Puts into that region of the target, again and again, until it is killed; says so on descriptor 3
// when as many puts have ended as asked for.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/testing/far_peer_opener.h"
#include "engine/transport/testing/target.h"
#include "engine/transport/testing/testing_options.h"
#include "engine/transport/ucx/ucx_transport.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kPieceBytes = 4 << 10;

void Write(Transport* transport, void* source, const std::string& description, size_t region,
           int puts) {
  const auto peer = transport->Connect(description);
  const auto memory = transport->Register(source, kTargetRegionBytes[1]);
  SKEIN_CHECK(peer.ok() && memory.ok());
  std::vector<TransferPiece> pieces;
  for (size_t at = 0; at < memory->bytes; at += 2 * kPieceBytes) {
    pieces.push_back({memory->id, at, peer->regions.at(region), at, kPieceBytes});
  }
  std::vector<TransferCompletion> ended;
  for (int ended_puts = 0;; ++ended_puts) {
    SKEIN_CHECK(transport->Post(peer->id, TransferOp::kPut, pieces, std::chrono::minutes(1)).ok());
    if (ended_puts == puts) SKEIN_CHECK(send(3, "x", 1, MSG_NOSIGNAL) == 1);
    transport->Poll(1, std::chrono::minutes(1), &ended);
    ended.clear();
  }
}

void Run(const std::string& tls, size_t region, int puts, bool far) {
  std::string description(1 << 16, '\0');
  const ssize_t bytes = recv(3, description.data(), description.size(), 0);
  SKEIN_CHECK(bytes > 0);
  description.resize(static_cast<size_t>(bytes));
  std::shared_ptr<FarDevice> device;
  if (far) device = std::make_shared<FarDevice>(kTargetRegionBytes[1]);
  auto transport = MakeUcxTransport(TestingOptions(tls), far ? MakeFarCopyStream(device) : nullptr,
                                    far ? MakeFarPeerOpener(device) : nullptr);
  SKEIN_CHECK_MSG(transport.ok(), transport.status().ToString().c_str());
  void* const source = far ? device->Alloc(kTargetRegionBytes[1]).value() : nullptr;
  Write(transport->get(), source, description, region, puts);
}

}  // namespace
}  // namespace skein::engine

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  SKEIN_CHECK(argc == 5);
  skein::engine::Run(argv[1], static_cast<size_t>(std::atoi(argv[2])), std::atoi(argv[3]),
                     std::string(argv[4]) == "far");
}
