// Attrs: the attributes of a node, a map from name to value in the order of the names.
//
// Copies share one table until one of them is changed: a graph's nodes are copied far more often
// than their attributes are, and equal layers have equal ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace meshtrain {

using AttrValue = std::variant<int64_t, double, std::string, std::vector<int64_t>>;

class Attrs {
 public:
  using value_type = std::pair<std::string, AttrValue>;
  using const_iterator = const value_type*;

  Attrs() = default;
  Attrs(std::initializer_list<value_type> list);  // of equal names the first counts

  const_iterator begin() const { return table_ == nullptr ? nullptr : table_->entries.data(); }
  const_iterator end() const { return begin() + size(); }
  size_t size() const { return table_ == nullptr ? 0 : table_->entries.size(); }
  bool empty() const { return size() == 0; }
  const_iterator find(std::string_view name) const;  // end() when there is none
  bool contains(std::string_view name) const { return find(name) != end(); }
  // Throws std::out_of_range when there is none.
  const AttrValue& at(std::string_view name) const;

  // The value of this name, made when there is none. Write through it at once: a copy of the Attrs
  // taken while the reference is held shares what it refers to.
  AttrValue& operator[](std::string_view name);
  // Keeps the value that is there already, as std::map's; second: whether this one is new.
  std::pair<const_iterator, bool> emplace(std::string_view name, AttrValue value);
  size_t erase(std::string_view name);  // how many were removed
  void clear() { table_.reset(); }

  uint64_t hash() const;  // equal for equal attributes, the same on every machine
  bool operator==(const Attrs& other) const;

 private:
  struct Table {
    Table() = default;
    explicit Table(std::vector<value_type> list) : entries(std::move(list)) {}
    std::vector<value_type> entries;       // by name
    std::atomic<uint64_t> known_hash = 0;  // 0: not computed yet
  };

  Table& own();  // a table that no other Attrs shares, its hash forgotten

  std::shared_ptr<Table> table_;  // null: no attributes
};

}  // namespace meshtrain
