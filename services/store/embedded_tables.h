// The tables of the embedded store's file, within a transaction of the caller.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/store/cluster_store.h"
#include "services/store/host_identity.h"
#include "services/store/sqlite.h"

namespace skein::services {

// What an operator is to do when the file is damaged.
inline constexpr char kIfDamaged[] =
    "stop all orchestrators of this host and remove the file, generations are learnt again from "
    "workers and routers";

// Sets up a connection, and the tables if they are not there, for this host. FAILED_PRECONDITION:
// the file is of another host, or of a newer version.
absl::Status SetUpTables(SqliteFile* file, const HostIdentity& host);

// Checks that the file is still this boot's: another one may have taken it over. Returns the
// revision.
absl::StatusOr<int64_t> ReadRevision(SqliteFile* file, const HostIdentity& host);
// Counts it up and returns the new one: for a commit.
absl::StatusOr<int64_t> NextRevision(SqliteFile* file, const HostIdentity& host);

// Entries whose lease has ended are left out. `whole`: the prefix is a whole key.
absl::StatusOr<StoreSnapshot> ReadEntries(SqliteFile* file, const HostIdentity& host,
                                          const std::string& prefix, bool whole, int64_t now_us);
// The same in a read transaction of its own.
absl::StatusOr<StoreSnapshot> ReadOnce(SqliteFile* file, const HostIdentity& host,
                                       const std::string& prefix, bool whole, int64_t now_us);

// Deletes what has ended. Whether an entry was among it.
absl::StatusOr<bool> Expire(SqliteFile* file, int64_t now_us);
// Deletes a lease and its entries. NOT_FOUND: there is no such lease.
absl::StatusOr<bool> DropLease(SqliteFile* file, uint64_t lease);

}  // namespace skein::services
