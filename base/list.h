/*
 * Intrusive doubly linked circular list. The head is a list_node too; an empty list points at
 * itself. Nothing is allocated; a node is on at most one list. Any thread, no locking.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>

#include "base/util.h"

struct list_node {
	struct list_node *next, *prev;
};

#define LIST_INIT(name)                                                                            \
	{                                                                                          \
		&(name), &(name)                                                                   \
	}

static inline void list_init(struct list_node *head)
{
	head->next = head->prev = head;
}

static inline bool list_empty(const struct list_node *head)
{
	return head->next == head;
}

static inline void list_insert_between(struct list_node *node, struct list_node *prev,
				       struct list_node *next)
{
	node->prev = prev;
	node->next = next;
	prev->next = node;
	next->prev = node;
}

static inline void list_push_back(struct list_node *head, struct list_node *node)
{
	list_insert_between(node, head->prev, head);
}

/* Leaves the node pointing at itself, so that removing it twice is harmless. */
static inline void list_remove(struct list_node *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* NULL when empty. */
static inline struct list_node *list_pop_front(struct list_node *head)
{
	struct list_node *node = head->next;

	if (node == head)
		return NULL;
	list_remove(node);
	return node;
}

/* Moves all of src to the end of dst; src is empty afterwards. */
static inline void list_splice(struct list_node *dst, struct list_node *src)
{
	if (list_empty(src))
		return;
	src->next->prev = dst->prev;
	dst->prev->next = src->next;
	src->prev->next = dst;
	dst->prev = src->prev;
	list_init(src);
}

#define list_entry(ptr, type, member) container_of(ptr, type, member)

#define list_for_each(pos, head)                                                                   \
	for (struct list_node *pos = (head)->next; (pos) != (head); (pos) = (pos)->next)

/* pos may be removed in the body. */
#define list_for_each_safe(pos, tmp, head)                                                         \
	for (struct list_node *pos = (head)->next, *tmp = (pos)->next; (pos) != (head);            \
	     (pos) = (tmp), (tmp) = (pos)->next)

#endif
