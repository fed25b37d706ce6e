// Roles of processes and people, as certificates name them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::services::tls {

enum class Role : uint8_t { kOrchestrator, kRouter, kPrefillWorker, kDecodeWorker, kOperator };
inline constexpr int kRoles = 5;

// "orchestrator", "router", "prefill-worker", "decode-worker", "operator".
std::string_view NameOf(Role role);

class RoleSet {
 public:
  constexpr RoleSet() = default;
  constexpr RoleSet(std::initializer_list<Role> roles) {
    for (const Role role : roles) Add(role);
  }
  static constexpr RoleSet All() {
    RoleSet all;
    all.bits_ = (1U << kRoles) - 1;
    return all;
  }

  constexpr void Add(Role role) { bits_ |= 1U << static_cast<unsigned>(role); }
  constexpr bool Has(Role role) const { return (bits_ & (1U << static_cast<unsigned>(role))) != 0; }
  constexpr bool Meets(RoleSet other) const { return (bits_ & other.bits_) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr unsigned bits() const { return bits_; }
  friend constexpr bool operator==(RoleSet a, RoleSet b) { return a.bits_ == b.bits_; }

 private:
  unsigned bits_ = 0;
};

// "router or operator"; "no role" for the empty set.
std::string NamesOf(RoleSet roles);

// The alternative names of a certificate (SubjectAltName).
struct SubjectNames {
  std::vector<std::string> uris, dns;
};

// "example.org" of the first URI "spiffe://example.org/..."; "" if there is none.
std::string TrustDomainOf(const SubjectNames& names);

// The roles that a certificate names: each URI "spiffe://TRUST-DOMAIN/skein/ROLE" and each DNS name
// "ROLE.skein.internal". (No public authority signs names under .internal.) URIs of other trust
// domains than `trust_domain` count nothing; "" takes any.
RoleSet RolesOf(const SubjectNames& names, std::string_view trust_domain);

}  // namespace skein::services::tls
