#include "engine/comm/device/nccl/nccl_calls.h"

#include "absl/strings/str_cat.h"

namespace skein::engine {

absl::Status FromNccl(const NcclApi& nccl, ncclResult_t result, const char* what) {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(what, ": ", nccl.get_error_string(result)));
}

absl::Status StartTogether(const NcclApi& nccl, ncclComm_t comm, cudaStream_t stream,
                           std::span<const NcclMessage> messages) {
  absl::Status status;
  nccl.group_start();
  for (const NcclMessage& message : messages) {
    if (message.bytes == 0 || !status.ok()) continue;
    status = FromNccl(
        nccl,
        message.outgoing
            ? nccl.send(message.data, message.bytes, ncclUint8, message.peer, comm, stream)
            : nccl.recv(message.data, message.bytes, ncclUint8, message.peer, comm, stream),
        message.outgoing ? "ncclSend" : "ncclRecv");
  }
  const absl::Status ended = FromNccl(nccl, nccl.group_end(), "ncclGroupEnd");
  return status.ok() ? ended : status;
}

}  // namespace skein::engine
