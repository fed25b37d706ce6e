// The two books of a pair, whose words arrive late and in any order, and rings that end at any
// time, at one end before the other: never do two rings use one lane, nor does one receive what
// another was sent.
#include "engine/comm/device/lanes/lane_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/comm/testing/far_lanes.h"

namespace skein::engine {
namespace {

constexpr int kLead = 0, kFollower = 1;

// Of a ring: what one end knows and does. Its messages hold the ring's number and their own.
struct End {
  bool open = true;
  LaneLease lease;
  int started = 0, done = 0;
  bool moving = false, receives = false;
  std::vector<std::byte> out, in;
};

struct Ring {
  uint64_t number = 0;
  int exchanges = 0;
  bool offered = false, granted = false, accepted = false, failed = false;
  LaneOffer offer;
  LaneGrant grant;
  int agreed = 0;  // exchanges of which both ends told each other
  std::array<End, 2> ends;

  bool Over() const { return !ends[kLead].open && !ends[kFollower].open; }
  bool Finished(int end) const { return failed || ends[end].done == exchanges; }
};

class Pair {
 public:
  Pair(uint64_t seed, MayMake may_make = nullptr)
      : random_(seed),
        hub_(std::make_shared<FarLaneHub>([this] { return static_cast<int>(random_() % 40); })),
        maker_(MakeFarLaneMaker(hub_, nullptr, std::move(may_make))) {
    for (const int end : {kLead, kFollower}) {
      books_[end] = std::make_unique<LaneBook>(maker_, end == kLead, &made_[end]);
    }
  }

  enum class Opens { kInSteps, kAnytime };

  // `rings` rings, up to `at_once` of them open at a time; in steps: so many together, and no other
  // before the last of them is closed. `hasty`: ends may be closed early.
  void Run(int rings, size_t at_once, Opens opens, bool hasty) {
    for (int opened = 0; opened < rings || !rings_.empty();) {
      const bool opening = opens == Opens::kAnytime || rings_.empty();
      while (opening && opened < rings && rings_.size() < at_once) {
        rings_.push_back(std::make_unique<Ring>());
        rings_.back()->number = next_++;
        rings_.back()->exchanges = static_cast<int>(random_() % 6);
        ++opened;
      }
      Step(rings_[random_() % rings_.size()].get(), hasty);
      std::erase_if(rings_, [](const auto& ring) { return ring->Over(); });
      ASSERT_EQ(hub_->Mistake(), "");
    }
  }

  uint64_t made(int end) const { return made_[end]; }
  int finished() const { return finished_; }
  int refused() const { return refused_; }  // rings to which the lead granted no lane

 private:
  void Step(Ring* ring, bool hasty) {
    const int end = static_cast<int>(random_() % 2);
    switch (random_() % 4) {
      case 0:
        return Handshake(ring);
      case 1:
        return Start(ring, end);
      case 2:
        return Look(ring, end);
      default:
        return Close(ring, end, hasty && random_() % 8 == 0);
    }
  }

  void Handshake(Ring* ring) {
    End& lead = ring->ends[kLead];
    End& follower = ring->ends[kFollower];
    if (ring->exchanges == 0) return;  // it needs no lane
    if (!ring->offered && follower.open) {
      ring->offer = books_[kFollower]->Offer();
      follower.lease.number = ring->offer.number;
      ring->offered = true;
    } else if (ring->offered && !ring->granted && lead.open) {
      const absl::StatusOr<LaneLease> lease = books_[kLead]->Grant(ring->offer, &ring->grant);
      if (!lease.ok()) ++refused_;
      Lease(lease, ring, &lead);
      ring->granted = true;
    } else if (ring->granted && !ring->accepted && follower.open) {
      Lease(books_[kFollower]->Accept(ring->offer, ring->grant), ring, &follower);
      ring->accepted = true;
    } else if (ring->accepted && lead.open && follower.open && !ring->failed &&
               ring->agreed < ring->exchanges && lead.started == ring->agreed &&
               follower.started == ring->agreed) {
      ++ring->agreed;
    }
  }

  static void Lease(absl::StatusOr<LaneLease> lease, Ring* ring, End* end) {
    EXPECT_FALSE(absl::IsInternal(lease.status())) << lease.status();
    if (lease.ok()) end->lease = *lease;
    ring->failed = ring->failed || !lease.ok();
  }

  bool IsMade(const Ring& ring, int end) {
    const absl::StatusOr<bool> made = books_[end]->Made(ring.ends[end].lease);
    return made.ok() && *made;
  }

  void Start(Ring* ring, int at) {
    End& end = ring->ends[at];
    if (!end.open || end.moving || end.started >= ring->agreed || end.lease.lane < 0) return;
    if (end.started == 0 && !IsMade(*ring, at)) return;
    const std::vector<std::byte> content = ContentOf(*ring, end.started);
    end.out = content;
    end.in.assign(content.size(), std::byte{0});
    std::vector<LaneMessage> messages;
    for (const bool outgoing : {true, false}) {
      const int from = outgoing ? at : 1 - at;
      if (end.started % 3 == 1 + from) continue;  // every third goes one way only
      messages.push_back({outgoing, outgoing ? end.out.data() : end.in.data(), content.size()});
    }
    end.receives = !messages.back().outgoing;
    ++end.started;
    ASSERT_TRUE(books_[at]->Start(end.lease, messages).ok());
    end.moving = true;
  }

  static std::vector<std::byte> ContentOf(const Ring& ring, int exchange) {
    std::vector<std::byte> content(sizeof ring.number + 1 + ring.number % 50 +
                                   static_cast<size_t>(exchange));
    std::memcpy(content.data(), &ring.number, sizeof ring.number);
    content.back() = static_cast<std::byte>(exchange);
    return content;
  }

  void Look(Ring* ring, int at) {
    End& end = ring->ends[at];
    if (!end.open || !end.moving) return;
    const absl::StatusOr<bool> done = books_[at]->Done(end.lease);
    ASSERT_TRUE(done.ok());
    if (!*done) return;
    if (end.receives) {
      EXPECT_EQ(end.in, ContentOf(*ring, end.done));
    }
    end.moving = false;
    ++end.done;
    if (end.done == ring->exchanges) ++finished_;
  }

  // An end whose ring the other one has left hears of it, and leaves too.
  void Close(Ring* ring, int at, bool early) {
    End& end = ring->ends[at];
    const End& other = ring->ends[1 - at];
    const bool left = !other.open && other.done < ring->exchanges;
    if (!end.open || !(early || left || ring->Finished(at))) return;
    books_[at]->End(end.lease);
    end.open = false;
  }

  std::mt19937_64 random_;
  const std::shared_ptr<FarLaneHub> hub_;
  const std::shared_ptr<LaneMaker> maker_;
  std::array<std::atomic<uint64_t>, 2> made_ = {};
  std::array<std::unique_ptr<LaneBook>, 2> books_;
  std::vector<std::unique_ptr<Ring>> rings_;
  uint64_t next_ = 1;
  int finished_ = 0;
  int refused_ = 0;
};

TEST(LaneBook, TheFirstRingMakesTheLanesOfThoseBehindIt) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Pair pair(seed);
    pair.Run(4, 1, Pair::Opens::kInSteps, false);
    const uint64_t first = pair.made(kLead);
    pair.Run(200, kLanesAtFirst, Pair::Opens::kInSteps, false);
    EXPECT_TRUE(first == 0 || first == kLanesAtFirst);
    if (first == 0) continue;  // none of the first rings needed a lane
    EXPECT_EQ(pair.made(kLead), first);
    EXPECT_EQ(pair.made(kFollower), first);
  }
}

TEST(LaneBook, MoreRingsAtOnceMakeMoreLanesOnce) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Pair pair(seed);
    pair.Run(200, kRingsAtOnce, Pair::Opens::kInSteps, false);
    EXPECT_LE(pair.made(kLead), static_cast<uint64_t>(kLanesMax));
    EXPECT_EQ(pair.made(kLead), pair.made(kFollower));
  }
}

TEST(LaneBook, RingsAtOnceAlwaysFindALane) {
  for (const bool hasty : {false, true}) {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      SCOPED_TRACE(seed);
      Pair pair(seed);
      pair.Run(300, kRingsAtOnce, Pair::Opens::kAnytime, hasty);
      EXPECT_EQ(pair.refused(), 0);
    }
  }
}

TEST(LaneBook, RingsThatEndAtAnyTimeLeaveNothingToOthers) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Pair pair(seed);
    pair.Run(300, 3, Pair::Opens::kAnytime, true);
    const int before = pair.finished();
    pair.Run(50, 2, Pair::Opens::kAnytime, false);
    EXPECT_GT(pair.finished(), before + 50) << "at both ends, but for rings without messages";
  }
}

TEST(LaneBook, ALaneThatCannotBeMadeIsTriedAgain) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    bool refuses = true;
    std::mt19937_64 random(seed);
    Pair pair(seed, [&]() -> absl::Status {
      if (!refuses || random() % 2 == 0) return absl::OkStatus();
      return absl::ResourceExhaustedError("no memory left");
    });
    pair.Run(100, 2, Pair::Opens::kAnytime, true);
    refuses = false;
    const int before = pair.finished();
    pair.Run(50, 2, Pair::Opens::kAnytime, false);
    EXPECT_GT(pair.finished(), before + 50);
  }
}

// Two books whose words arrive when the test says so.
class TwoBooks {
 public:
  struct Opened {
    LaneOffer offer;
    LaneGrant grant;
    LaneLease leads, follows;
  };

  Opened Offer() { return {.offer = follower_.Offer()}; }
  void Grant(Opened* ring) {
    const absl::StatusOr<LaneLease> lease = lead_.Grant(ring->offer, &ring->grant);
    ASSERT_TRUE(lease.ok()) << lease.status();
    ring->leads = *lease;
  }
  void Accept(Opened* ring) {
    const absl::StatusOr<LaneLease> lease = follower_.Accept(ring->offer, ring->grant);
    ASSERT_TRUE(lease.ok()) << lease.status();
    ring->follows = *lease;
    EXPECT_EQ(ring->leads.lane, ring->follows.lane);
  }
  Opened Open() {
    Opened ring = Offer();
    Grant(&ring);
    Accept(&ring);
    return ring;
  }
  void Close(const Opened& ring) {
    lead_.End(ring.leads);
    follower_.End(ring.follows);
  }
  uint64_t made() const { return made_; }

 private:
  const std::shared_ptr<FarLaneHub> hub_ = std::make_shared<FarLaneHub>();
  const std::shared_ptr<LaneMaker> maker_ = MakeFarLaneMaker(hub_, nullptr);
  std::atomic<uint64_t> made_{0};
  LaneBook lead_{maker_, true, &made_}, follower_{maker_, false, &made_};
};

// The follower knows of no lane yet when it makes its last offer.
TEST(LaneBook, AllRingsMayOfferBeforeTheFirstGrant) {
  for (const bool in_order : {true, false}) {
    TwoBooks books;
    std::vector<TwoBooks::Opened> rings;
    for (int i = 0; i < kRingsAtOnce; ++i) rings.push_back(books.Offer());
    if (!in_order) std::reverse(rings.begin(), rings.end());
    for (TwoBooks::Opened& ring : rings) ASSERT_NO_FATAL_FAILURE(books.Grant(&ring));
    if (!in_order) std::reverse(rings.begin(), rings.end());
    std::set<int> lanes;
    for (TwoBooks::Opened& ring : rings) {
      ASSERT_NO_FATAL_FAILURE(books.Accept(&ring));
      lanes.insert(ring.leads.lane);
    }
    EXPECT_EQ(lanes.size(), rings.size());
    EXPECT_LE(books.made(), 2u * kLanesMax);
  }
}

// An offer is held up while the rings of its time end and others come: by that offer alone the lead
// could grant no lane that any of them had.
TEST(LaneBook, AnOfferThatComesLateFindsALaneThatIsThere) {
  TwoBooks books;
  std::vector<TwoBooks::Opened> rings;
  for (int i = 0; i < kRingsAtOnce; ++i) rings.push_back(books.Offer());
  for (TwoBooks::Opened& ring : rings) ASSERT_NO_FATAL_FAILURE(books.Grant(&ring));
  for (TwoBooks::Opened& ring : rings) ASSERT_NO_FATAL_FAILURE(books.Accept(&ring));
  books.Close(rings.front());
  TwoBooks::Opened late = books.Offer();
  for (int i = 1; i < kRingsAtOnce; ++i) books.Close(rings[i]);
  const uint64_t made = books.made();
  for (int i = 1; i < kRingsAtOnce; ++i) books.Open();
  ASSERT_NO_FATAL_FAILURE(books.Grant(&late));
  ASSERT_NO_FATAL_FAILURE(books.Accept(&late));
  EXPECT_EQ(books.made(), made);
}

// An end that left a ring has given its buffers back: no message of the other end reaches them.
TEST(LaneBook, ALaneWithMessagesUnderWayIsBrokenOff) {
  const auto hub = std::make_shared<FarLaneHub>();
  const auto maker = MakeFarLaneMaker(hub, nullptr);
  std::atomic<uint64_t> made{0};
  LaneBook lead(maker, true, &made), follower(maker, false, &made);
  const LaneOffer offer = follower.Offer();
  LaneGrant grant;
  const LaneLease leads = lead.Grant(offer, &grant).value();
  const LaneLease follows = follower.Accept(offer, grant).value();
  std::vector<std::byte> sent(100'000, std::byte{1}), received(sent.size());
  const LaneMessage out = {true, sent.data(), sent.size()};
  const LaneMessage in = {false, received.data(), received.size()};
  ASSERT_TRUE(lead.Start(leads, {&in, 1}).ok());
  lead.End(leads);
  ASSERT_TRUE(follower.Start(follows, {&out, 1}).ok());
  EXPECT_FALSE(follower.Done(follows).value());
  EXPECT_EQ(received.back(), std::byte{0});
  follower.End(follows);
  LaneGrant next;
  EXPECT_TRUE(lead.Grant(follower.Offer(), &next).ok());
  EXPECT_NE(next.drops, 0u);
  EXPECT_EQ(hub->Mistake(), "");
}

// A ring gets the lane that another one has made beside its own, which ends while both are being
// made.
TEST(LaneBook, ALaneThatIsBrokenOffAfterTheOfferIsUnavailable) {
  const auto hub = std::make_shared<FarLaneHub>([] { return 1'000; });
  const auto maker = MakeFarLaneMaker(hub, nullptr);
  std::atomic<uint64_t> made{0};
  LaneBook lead(maker, true, &made), follower(maker, false, &made);
  std::array<LaneOffer, 2> offers;
  std::array<LaneGrant, 2> grants;
  offers[0] = follower.Offer();
  ASSERT_TRUE(lead.Grant(offers[0], &grants[0]).ok());
  const LaneLease first = follower.Accept(offers[0], grants[0]).value();
  offers[1] = follower.Offer();
  ASSERT_TRUE(lead.Grant(offers[1], &grants[1]).ok());
  ASSERT_EQ(grants[1].makes, 0u);
  follower.End(first);
  const absl::StatusOr<LaneLease> second = follower.Accept(offers[1], grants[1]);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_EQ(hub->Mistake(), "");
}

// A process that lost sight of another one and made its book anew.
TEST(LaneBook, ANewBookMeetsAnOldOne) {
  const auto hub = std::make_shared<FarLaneHub>();
  const auto maker = MakeFarLaneMaker(hub, nullptr);
  std::atomic<uint64_t> made{0};
  for (const int renewed : {kLead, kFollower}) {
    std::array<std::unique_ptr<LaneBook>, 2> books = {
        std::make_unique<LaneBook>(maker, true, &made),
        std::make_unique<LaneBook>(maker, false, &made)};
    for (int round = 0; round < 4; ++round) {
      const LaneOffer offer = books[kFollower]->Offer();
      LaneGrant grant;
      const absl::StatusOr<LaneLease> lead = books[kLead]->Grant(offer, &grant);
      ASSERT_TRUE(lead.ok()) << lead.status();
      const absl::StatusOr<LaneLease> follower = books[kFollower]->Accept(offer, grant);
      ASSERT_TRUE(follower.ok()) << follower.status();
      EXPECT_EQ(grant.makes != 0, round == 0 || round == 2);
      books[kLead]->End(*lead);
      books[kFollower]->End(*follower);
      if (round == 1) {
        books[renewed] = std::make_unique<LaneBook>(maker, renewed == kLead, &made);
      }
    }
  }
  EXPECT_EQ(hub->Mistake(), "");
}

}  // namespace
}  // namespace skein::engine
